package reclaim

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// MaxSteps bounds the steps of one session. A deletion takes eight; only reads that are too old before the next is
// answered take more.
const MaxSteps = 24

// Session is the work on one PV from an event to the next wait: it decides, returns an Ask, adds the Reply to its
// Facts, and decides again.
type Session struct {
	Facts Facts
	// Ask is the call that the session waits for.
	Ask Ask
	// Steps and Reads count the steps, and those of them that are live reads.
	Steps, Reads int
	// Listed is what a live list of VolumeAttachments showed in this session, nil for none.
	Listed map[string]int
	// Absent are siblings that a live read did not find, whatever the cache still shows.
	Absent []types.UID
	// Deleting is the handle of the volume whose DeleteVolume is under way.
	Deleting string
}

// Result says when a PV whose session has ended is decided on again.
type Result uint8

const (
	// Asks: the session has not ended, Ask is to be carried out.
	Asks Result = iota
	// Idle: when an event concerns it.
	Idle
	// Soon: in a moment, for what ends by itself.
	Soon
	// Retry: after a delay that grows.
	Retry
	// Slow: after a longer one, for what a person has to change first.
	Slow
)

// Kind is what a Report is about.
type Kind uint8

const (
	// None: nothing is reported.
	None Kind = iota
	// Waits: this is why nothing more is done about the PV.
	Waits
	// Would: a dry run ends before this step.
	Would
	// Failed: the step failed. Only a new reason is news: messages differ from try to try.
	Failed
	// FailedByCause is Failed where each new message of the error is news.
	FailedByCause
	// Besides: true besides why the PV waits.
	Besides
)

// Report is what is reported about a PV.
type Report struct {
	Kind   Kind
	Reason Reason
	// Detail adds to the reason's sentence. The caller adds the error of a step that failed.
	Detail string
}

// Step is what follows from a decision or an answer.
type Step struct {
	Decision Decision
	Result   Result
	// Report is why the session ended, Besides what is reported besides.
	Report, Besides Report
	// Protect: the PV is to get its finalizer, which is the work of another loop.
	Protect bool
	// Settled: the PV is gone, nothing is left to do, and no record of it is left.
	Settled bool
}

// Begin begins a session on facts that [Engine.Facts] returned.
func (e *Engine) Begin(f Facts, at Moment) (*Session, Step) {
	s := &Session{Facts: f}
	return s, e.next(s, at).by(at)
}

// Answer takes the reply to the session's Ask.
func (e *Engine) Answer(s *Session, reply Reply, at Moment) Step {
	return e.answer(s, reply, at).by(at)
}

// by drops the reports of a replica that does not hold its Lease: another one may have changed what it knows.
func (s Step) by(at Moment) Step {
	if !at.Leading {
		s.Report, s.Besides = Report{}, Report{}
	}
	return s
}

func (e *Engine) answer(s *Session, reply Reply, at Moment) Step {
	asked := s.Ask
	e.Abandon(s)
	e.Tracker.Answered(asked, reply)
	over, step := e.learn(s, reply)
	if over {
		return step
	}
	besides := step.Besides
	if !e.observe(s, at) {
		return Step{Decision: asked.Decision, Result: Idle, Besides: besides}
	}
	step = e.next(s, at)
	if besides.Kind != None {
		step.Besides = besides
	}
	return step
}

// Abandon ends what keeps others from the volume of a session. It is called at the end of a session whose last Ask was
// not answered; otherwise it has no effect.
func (e *Engine) Abandon(s *Session) {
	if s.Deleting != "" {
		delete(e.Deleting, s.Deleting)
		s.Deleting = ""
	}
}

// next decides, and determines the next Ask.
func (e *Engine) next(s *Session, at Moment) Step {
	d := Decide(s.Facts, at.Now)
	step := Step{Decision: d}
	switch {
	case d.Action == Wait:
		return e.wait(s, step)
	case e.DryRun && d.Action.writes():
		step.Result, step.Report = Idle, Report{Would, d.Reason, "Would do " + d.Action.String() + ": " + d.Reason.Sentence()}
		if s.Facts.End.Gone {
			e.settle(s, &step)
		}
		return step
	case d.Action.Protects():
		// Another loop's work: a backlog of these must not delay deletions.
		step.Result, step.Protect = Idle, true
		return step
	case s.Steps == MaxSteps:
		step.Result, step.Report = Retry, Report{Failed, ReasonAPIReadFailed,
			fmt.Sprintf("prepare the deletion of PV %q: reads take longer than %v, so that each is too old when the next is "+
				"answered", s.Facts.PV.Name, session.LiveFor)}
		return step
	case d.Action == DeleteVolume && e.isDeleting(s.Facts.PV.Handle):
		step.Result, step.Report = Soon, Report{Failed, ReasonVolumeBusy, "the volume is being deleted already"}
		return step
	}
	s.Steps++
	if d.Reason == ReasonTooLateToKeep {
		step.Besides = Report{Kind: Besides, Reason: d.Reason}
	}
	e.ask(s, d, at.Now)
	return step
}

func (e *Engine) isDeleting(handle string) bool {
	_, deleting := e.Deleting[handle]
	return deleting
}

// wait ends a session with the reason why nothing more is done now.
func (e *Engine) wait(s *Session, step Step) Step {
	d := step.Decision
	step.Result = Idle
	if d.Timed {
		step.Result = Retry
	}
	if d.Reason == ReasonNotLeading {
		return step // what was reported before stays as it is
	}
	step.Report = Report{Kind: Waits, Reason: d.Reason}
	if d.Over {
		e.settle(s, &step)
	}
	return step
}

// settle drops the record of a PV that is gone.
func (e *Engine) settle(s *Session, step *Step) {
	e.Tracker.Forget(&s.Facts.PV)
	step.Settled = true
}

// ask determines the Ask of a decision, and records what is under way.
func (e *Engine) ask(s *Session, d Decision, now time.Time) {
	a := Ask{Decision: d, PV: s.Facts.PV}
	switch d.Action {
	case ReadClaim, ReadPV, ListPVs, ListNodes:
		a.Read = s.nextRead(now)
	case ReadSiblings:
		a.Read, a.Siblings = s.nextRead(now), s.Facts.Siblings
	case DeleteVolume:
		s.Deleting = a.PV.Handle
		e.Deleting[s.Deleting] = struct{}{}
	case RemoveFinalizer:
		a.Remove, a.Bound = s.Facts.Rules.Finalizers(a.PV), true
	case FinalizePV:
		// By UID alone: the volume is gone, whatever else changed on the PV.
		a.Remove = s.Facts.Rules.Finalizers(a.PV)
	case Wait, AddFinalizer, AdoptPV, ListAttachments, ReadSecrets, DeletePV:
	}
	e.Tracker.expect(a)
	s.Ask = a
}

// nextRead numbers a live read.
func (s *Session) nextRead(now time.Time) session.Read {
	s.Reads++
	return session.Read{Sent: now, Order: s.Reads}
}

// observe brings in what the watches have shown since, and keeps what live reads of this session have shown. It
// reports false when they showed the PV's end: what that leaves to do is another item, with the same record.
func (e *Engine) observe(s *Session, at Moment) (exists bool) {
	f := &s.Facts
	f.Brake, f.Leading = e.Breaker.State, at.Leading
	if at.Log != LogUnknown {
		// A log that is closed while the program stops does not take back what it showed.
		f.Log, f.LogProblem = at.Log, at.LogProblem
	}
	if f.End.Gone {
		e.observeEnd(s)
	} else if !e.observePV(s) {
		return false
	}
	f.Attachments = max(f.count(e.Attached), f.count(s.Listed))
	return true
}

// observePV brings in what became known about a PV.
func (e *Engine) observePV(s *Session) (known bool) {
	f := &s.Facts
	memory, known := e.Tracker.Of(f.PV)
	f.Done, f.History, f.Contested, f.DriverContested = memory.Done, memory.History, memory.Contested,
		memory.DriverContested
	f.ClaimEndedAt = memory.ClaimEndedAt
	now := e.siblingsOf(s)
	if f.SiblingsRead == (session.Read{}) || hasUnread(now, f.Siblings) {
		f.Siblings, f.SiblingsRead = now, session.Read{}
	}
	return known
}

// observeEnd brings in what became known about a PV after it was gone.
func (e *Engine) observeEnd(s *Session) {
	f := &s.Facts
	f.Siblings = e.siblings(f.PV, "")
	memory, tombstone, known := e.Tracker.ofEnd(f.PV.UID)
	f.Contested, f.DriverContested = memory.Contested, memory.DriverContested
	if known {
		f.Done, f.History = memory.Done, memory.History
	}
	// What is not tracked any more concerns another leader now.
	f.End.Shared = f.End.Shared || tombstone.End.Shared || !known
}

// hasUnread reports whether the cache shows a PV of the volume that was not read live, or a later state of one than
// was read.
func hasUnread(cached, read []volume.PV) bool {
	for _, now := range cached {
		known := slices.ContainsFunc(read, func(r volume.PV) bool {
			return r.UID == now.UID && !newer(now.ResourceVersion, r.ResourceVersion)
		})
		if !known {
			return true
		}
	}
	return false
}

func (e *Engine) siblingsOf(s *Session) []volume.PV {
	var siblings []volume.PV
	for _, other := range e.siblings(s.Facts.PV, s.Facts.PV.Name) {
		if !slices.Contains(s.Absent, other.UID) {
			siblings = append(siblings, other)
		}
	}
	return siblings
}

// BeginProtect returns the Ask that protects the PV of a name. needed is false if the decision is another one now.
func (e *Engine) BeginProtect(name string, at Moment) (_ Ask, needed bool) {
	f, _ := e.Facts(Item{Name: name}, at) // of a PV that is not known, Decide does nothing
	d := Decide(f, at.Now)
	if !d.Action.Protects() {
		return Ask{}, false
	}
	a := Ask{Decision: d, PV: f.PV, Add: []string{f.Rules.finalizer()}}
	if d.Action == AdoptPV {
		a.Remove = []string{volume.CompanionFinalizer}
	}
	e.Tracker.expect(a)
	return a, true
}

// AnswerProtect takes the answer to it.
func (e *Engine) AnswerProtect(a Ask, reply Reply, at Moment) Step {
	e.Tracker.Answered(a, reply)
	if reply.Outcome != OK {
		return failed(a.Decision, ReasonAPIWriteFailed, reply.Outcome).by(at)
	}
	return Step{Decision: a.Decision, Result: Idle}
}
