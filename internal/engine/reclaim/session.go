package reclaim

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// MaxSteps bounds the steps of one session. A deletion takes eight; it takes more only if reads grow too old before
// the next is answered.
const MaxSteps = 24

// Session is the work on one PV from an event to the next wait: it decides, returns an Ask, adds the Reply to its
// Facts, and decides again.
type Session struct {
	Facts Facts
	// Ask is the call whose Reply the session waits for.
	Ask Ask
	// Steps counts the steps, and Reads the live reads among them.
	Steps, Reads int
	// Listed is the result of a live list of VolumeAttachments in this session, nil for none.
	Listed map[string]int
	// Absent are siblings that a live read did not find, even if the cache still shows them.
	Absent []types.UID
	// Deleting is the key of the handle whose DeleteVolume is under way.
	Deleting string
}

// Result determines the next decision on a PV after its session has ended.
type Result uint8

const (
	// Asks means that the session has not ended, and Ask is to be carried out.
	Asks Result = iota
	// Idle waits for the next event of the PV.
	Idle
	// Soon decides again a moment later, for a cause that ends by itself.
	Soon
	// Later decides again after Decision.Quiet.
	Later
	// Retry decides again after a delay that grows.
	Retry
	// Slow decides again after a longer delay, for a cause that a person has to remove.
	Slow
)

// Kind is the subject of a Report.
type Kind uint8

const (
	// None reports nothing.
	None Kind = iota
	// Waits reports why the PV waits.
	Waits
	// Counts counts the PV as waiting, and reports nothing yet.
	Counts
	// Would reports the step that a dry run ends before.
	Would
	// Failed reports a failed step. Only a new reason is reported again, because messages differ between tries.
	Failed
	// FailedByCause is Failed with every new error message reported again.
	FailedByCause
	// Besides reports a fact in addition to why the PV waits.
	Besides
)

// Report is a message to people about a PV.
type Report struct {
	Kind   Kind
	Reason Reason
	// Detail completes the reason's sentence, to which the caller adds the error of a step that failed.
	Detail string
}

// Step is the result of a decision or an answer.
type Step struct {
	Decision Decision
	Result   Result
	// Report is why the session ended, and Besides a report in addition.
	Report, Besides Report
	// TooLate are other PVs of the volume that were changed to keep it while it was being deleted, to be reported with
	// ReasonTooLateToKeep.
	TooLate []volume.PV
	// Protect is true if the PV is to get its finalizer, which is the work of another loop.
	Protect bool
	// Settled is true if the PV is gone, no work is left, and its record is dropped.
	Settled bool
}

// Begin begins a session on facts that [Engine.Facts] returned.
func (e *Engine) Begin(f Facts, at Moment) (*Session, Step) {
	s := &Session{Facts: f}
	return s, e.next(s, at).by(at)
}

// Answer applies the reply to the session's Ask and decides again.
func (e *Engine) Answer(s *Session, reply Reply, at Moment) Step {
	return e.answer(s, reply, at).by(at)
}

// by drops the reports of a replica that does not hold its Lease, because the state may have changed under another
// leader.
func (s Step) by(at Moment) Step {
	if !at.Leading {
		s.Report, s.Besides, s.TooLate = Report{}, Report{}, nil
	}
	return s
}

func (e *Engine) answer(s *Session, reply Reply, at Moment) Step {
	asked := s.Ask
	e.Abandon(s)
	e.Tracker.Answered(asked, reply)
	over, learned := e.learn(s, reply)
	if over {
		return learned
	}
	step := Step{Decision: asked.Decision, Result: Idle}
	if e.observe(s, at) {
		step = e.next(s, at)
	}
	if learned.Besides.Kind != None {
		step.Besides = learned.Besides
	}
	step.TooLate = learned.TooLate
	return step
}

// Abandon releases the volume of a session for other sessions, if the last Ask of this one was not answered. Otherwise
// it has no effect.
func (e *Engine) Abandon(s *Session) {
	if s.Deleting != "" {
		delete(e.Deleting, s.Deleting)
		s.Deleting = ""
	}
}

// next decides and determines the next Ask.
func (e *Engine) next(s *Session, at Moment) Step {
	d := Decide(s.Facts, at.Now)
	step := Step{Decision: d}
	if s.Facts.mayBeTooLate(d.Reason) {
		step.Besides = Report{Besides, ReasonTooLateToKeep,
			fmt.Sprintf("DeleteVolume of %q was sent, and the driver has not answered that it is done.", s.Facts.PV.Handle)}
	}
	switch {
	case d.Action == Wait:
		return e.wait(s, step)
	case e.DryRun && d.Action.writes():
		step.Result, step.Report = Idle, Report{Would, d.Reason, d.Reason.Would(d.Action)}
		if s.Facts.End.Gone {
			e.settle(s, &step)
		}
		return step
	case d.Action.Protects():
		// Another loop does this work, because a backlog of it must not delay deletions.
		step.Result, step.Protect = Idle, true
		return step
	case s.Steps == MaxSteps:
		step.Result, step.Report = Retry, Report{Failed, ReasonAPIReadFailed,
			fmt.Sprintf("prepare the deletion of PV %q: reads take longer than %v: each is outdated when the next one "+
				"returns", s.Facts.PV.Name, session.LiveFor)}
		return step
	case d.Action == DeleteVolume && e.isDeleting(e.handle(&s.Facts.PV)):
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

// wait ends a session with the reason why the PV waits.
func (e *Engine) wait(s *Session, step Step) Step {
	d := step.Decision
	step.Result = Idle
	if d.Timed {
		step.Result = Retry
	}
	if d.Reason == ReasonNotLeading {
		return step // the earlier report stays
	}
	step.Report = Report{Kind: Waits, Reason: d.Reason}
	if d.Quiet > 0 {
		step.Result, step.Report.Kind = Later, Counts
	}
	if d.Over {
		e.settle(s, &step)
	}
	return step
}

func (e *Engine) settle(s *Session, step *Step) {
	e.Tracker.Forget(&s.Facts.PV)
	step.Settled = true
}

// ask determines the Ask of a decision and records the call that it begins.
func (e *Engine) ask(s *Session, d Decision, now time.Time) {
	a := Ask{Decision: d, PV: s.Facts.PV}
	switch d.Action {
	case ReadClaim, ReadPV, ListPVs, ListNodes:
		a.Read = s.nextRead(now)
	case ReadSiblings:
		a.Read, a.Siblings = s.nextRead(now), s.Facts.Siblings
	case DeleteVolume:
		s.Deleting = e.handle(&a.PV)
		e.Deleting[s.Deleting] = struct{}{}
	case RemoveFinalizer:
		a.Remove, a.Bound = s.Facts.Rules.Finalizers(a.PV), true
	case FinalizePV:
		// By UID alone, because the volume is gone no matter how the PV has changed.
		a.Remove = s.Facts.Rules.Finalizers(a.PV)
	case Wait, AddFinalizer, AdoptPV, ListAttachments, ReadSecrets, DeletePV:
	}
	e.Tracker.expect(a)
	s.Ask = a
}

func (s *Session) nextRead(now time.Time) session.Read {
	s.Reads++
	return session.Read{Sent: now, Order: s.Reads}
}

// observe adds newer state from the watches and keeps the results of this session's live reads. It returns false if
// the watches showed the PV's end, because the work left after that is another item with the same record.
func (e *Engine) observe(s *Session, at Moment) (exists bool) {
	f := &s.Facts
	f.Brake, f.Leading = e.Breaker.State, at.Leading
	if at.Log != LogUnknown {
		// A log that is closed while the program stops does not invalidate its last state.
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

// observePV updates the facts about an existing PV.
func (e *Engine) observePV(s *Session) (known bool) {
	f := &s.Facts
	memory, known := e.Tracker.Of(f.PV)
	f.Done, f.History, f.Contested, f.DriverContested = memory.Done, memory.History, memory.Contested,
		memory.DriverContested
	f.ClaimEndedAt = memory.ClaimEndedAt
	if f.SiblingsRead == (session.Read{}) || hasUnread(e.allSiblings(f.PV, f.PV.Name, s.Absent), f.Siblings) {
		f.Siblings, f.SiblingsRead = e.siblings(f.PV, f.PV.Name, s.Absent...), session.Read{}
	}
	return known
}

// observeEnd updates the facts about a PV that is gone.
func (e *Engine) observeEnd(s *Session) {
	f := &s.Facts
	f.Siblings = e.siblings(f.PV, "")
	memory, tombstone, known := e.Tracker.ofEnd(f.PV.UID)
	f.Contested, f.DriverContested = memory.Contested, memory.DriverContested
	if known {
		f.Done, f.History = memory.Done, memory.History
	}
	// An untracked PV concerns another leader now.
	f.End.Shared = f.End.Shared || tombstone.End.Shared || !known
}

// hasUnread reports whether the cache shows a PV of the volume that was not read live, or a later state than the read.
func hasUnread(cached, read []volume.PV) bool {
	versions := make(map[types.UID]string, len(read))
	for _, r := range read {
		versions[r.UID] = r.ResourceVersion
	}
	return slices.ContainsFunc(cached, func(now volume.PV) bool {
		version, known := versions[now.UID]
		return !known || newer(now.ResourceVersion, version)
	})
}

// BeginProtect returns the Ask that protects the PV with this name, unless it is no longer needed.
func (e *Engine) BeginProtect(name string, at Moment) (_ Ask, needed bool) {
	f, _ := e.Facts(Item{Name: name}, at) // without facts, Decide does nothing
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

// AnswerProtect applies the reply to that Ask.
func (e *Engine) AnswerProtect(a Ask, reply Reply, at Moment) Step {
	e.Tracker.Answered(a, reply)
	if reply.Outcome != OK {
		return failed(a.Decision, ReasonAPIWriteFailed, reply.Outcome).by(at)
	}
	return Step{Decision: a.Decision, Result: Idle}
}
