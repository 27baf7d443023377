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
	e.free(s)
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
// it has no effect. The call may have been sent: the program's end, or a panic of the driver's library, hides it.
func (e *Engine) Abandon(s *Session) {
	if s.Deleting != "" {
		e.sent(s.Ask.PV)
	}
	e.free(s)
}

func (e *Engine) free(s *Session) {
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
		return e.wait(s, step, at)
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
func (e *Engine) wait(s *Session, step Step, at Moment) Step {
	d := step.Decision
	step.Result = Idle
	if d.Timed {
		step.Result = Retry
	}
	if d.Reason == ReasonNotLeading {
		return step // the earlier report stays
	}
	if d.Quiet > 0 {
		step.Result, step.Report = Later, Report{Kind: Counts, Reason: d.Reason}
	} else {
		step.Report = Report{Waits, d.Reason, EventDetail(s.Facts, d.Reason, at)}
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
		a.Remove = s.Facts.Rules.finalizersAfterDeletion(a.PV)
	case Wait, AddFinalizer, AdoptPV, ListAttachments, ReadSecrets, DeletePV:
	}
	e.Tracker.expect(a)
	s.Ask = a
}

func (s *Session) nextRead(now time.Time) session.Read {
	s.Reads++
	return session.Read{Sent: now, Order: s.Reads}
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

// learn adds an answer to the facts, and reports in over that the session ends with the step.
func (e *Engine) learn(s *Session, reply Reply) (over bool, step Step) {
	a := s.Ask
	switch a.Action {
	case DeleteVolume:
		return e.volumeDeleted(s, reply)
	case DeletePV:
		if reply.Outcome != OK {
			return true, failed(a.Decision, ReasonAPIWriteFailed, reply.Outcome)
		}
		s.Facts.Done = e.Tracker.done(a.PV.UID, func(d *Done) { d.PVDeleted = true })
		return false, Step{}
	case RemoveFinalizer:
		// The cache shows a state before this write, whose own event enqueues the PV again.
		return true, written(a, reply)
	case FinalizePV:
		return true, e.finalized(s, reply)
	case ListAttachments, ReadSecrets, ReadClaim, ReadSiblings, ListPVs, ReadPV, ListNodes:
		if reply.Outcome != OK {
			return true, failed(a.Decision, readFailed(reply.Outcome), reply.Outcome)
		}
		return s.read(reply)
	case Wait, AddFinalizer, AdoptPV:
	}
	return true, failed(a.Decision, ReasonAPIReadFailed, Unanswered)
}

// finalized ends a session with the last write. The session decided by the PV as it was before the deletion of the
// volume; the answer shows whether the PV was changed to keep its volume since.
func (e *Engine) finalized(s *Session, reply Reply) Step {
	a := s.Ask
	// The tracker may have dropped the PV, because the event of its end can come before this answer.
	left := s.Facts
	left.PV = reply.PV
	if reply.Outcome == OK || reply.Outcome == Gone {
		s.Facts.Done = e.Tracker.done(a.PV.UID, func(d *Done) { d.Finalized = true })
	}
	step := written(a, reply)
	if reply.Outcome == OK && reply.Found && a.Reason != ReasonTooLateToKeep && left.changedSinceDeleted() {
		step.Besides = Report{Kind: Besides, Reason: ReasonTooLateToKeep}
	}
	return step
}

// written ends a session with a write that leaves no further decision.
func written(a Ask, reply Reply) Step {
	if reply.Outcome == OK {
		return Step{Decision: a.Decision, Result: Idle}
	}
	return failed(a.Decision, ReasonAPIWriteFailed, reply.Outcome)
}

func readFailed(outcome Outcome) Reason {
	switch outcome {
	case Unclear:
		return ReasonSecretUnclear
	case Stale:
		return ReasonCacheStale
	default:
		return ReasonAPIReadFailed
	}
}

// failed ends a session with a step that did not succeed, and determines the retry by its outcome.
func failed(d Decision, reason Reason, outcome Outcome) Step {
	step := Step{Decision: d, Result: Retry, Report: Report{Kind: Failed, Reason: reason}}
	switch outcome {
	case Canceled, Gone:
		step.Result, step.Report = Idle, Report{}
	case NotSent:
		step.Report = Report{}
	case Changed:
		// Not reported: the change's own event enqueues the PV. The delay covers an event that came before the answer.
		step.Result, step.Report = Soon, Report{}
	case InProgress:
		// The driver is still working and ends by itself, which deserves no Event. That may take it long.
		step.Report = Report{Kind: Counts, Reason: ReasonDeletionInProgress}
	case Stale:
		step.Result = Soon
	case Refused, Restored, Unclear:
		step.Result, step.Report.Kind = Slow, FailedByCause
	case Unanswered, OK:
	}
	return step
}

// read adds the result of a step that only reads.
func (s *Session) read(reply Reply) (over bool, step Step) {
	a, f := s.Ask, &s.Facts
	switch a.Action {
	case ListAttachments:
		s.Listed, f.AttachmentsCurrent = reply.Attached, true
		// The PV is read last, so a read that showed the need for this list does not count.
		f.PVRead = session.Read{}
	case ReadSecrets:
		f.SecretsRead = true
		if reply.Missing != "" {
			step.Besides = Report{Besides, ReasonSecretNotFound, reply.Missing}
		}
	case ReadClaim:
		f.Claim, f.ClaimRead = reply.Claim, a.Read
		f.Claim.Of = a.PV.Claim
	case ReadSiblings:
		s.siblingsRead(reply)
	case ListPVs:
		s.pvsListed(reply)
	case ListNodes:
		f.NodesListed, f.OnlyNode = a.Read, reply.OnlyNode
	case ReadPV:
		if !reply.Found || reply.PV.UID != a.PV.UID {
			return true, Step{Decision: a.Decision, Result: Idle}
		}
		f.PV, f.PVRead = reply.PV, a.Read
		if f.PV.Claim != a.PV.Claim {
			// The watch may have shown the end of this claim after the read.
			f.PVRead = session.Read{}
		}
		if !sameSecret(f.PV, a.PV) {
			f.SecretsRead, f.PVRead = false, session.Read{}
		}
	default:
	}
	return false, step
}

// sameSecret reports whether two states of a PV name one Secret.
func sameSecret(a, b volume.PV) bool {
	return a.SecretKnown == b.SecretKnown && a.DeletionSecret == b.DeletionSecret && a.StorageClass == b.StorageClass
}

// pvsListed records whether a PV names the volume of a PV that is gone. The PV itself counts, too: a restore of etcd
// brings it back with its UID.
func (s *Session) pvsListed(reply Reply) {
	for _, found := range reply.PVs {
		if sameVolume(found, s.Ask.PV) {
			s.Facts.End.Shared = true
		}
	}
	s.Facts.PVsListed = s.Ask.Read
}

// siblingsRead records the live state of the other PVs of the volume, and which of them are gone. A PV that has taken
// the name of one of them counts if it names the volume.
func (s *Session) siblingsRead(reply Reply) {
	f := &s.Facts
	f.SiblingsRead, f.SiblingNeeded = s.Ask.Read, ""
	f.Siblings = slices.DeleteFunc(reply.PVs, func(found volume.PV) bool {
		return !contains(s.Ask.Siblings, found.UID) && !sameVolume(found, f.PV)
	})
	for _, other := range f.Siblings {
		if other.Deletable() && ClaimNeedsVolume(other, reply.Claims[other.UID]) {
			f.SiblingNeeded = other.Name
		}
	}
	for _, asked := range s.Ask.Siblings {
		if !contains(f.Siblings, asked.UID) {
			s.Absent = append(s.Absent, asked.UID)
		}
	}
}

func contains(pvs []volume.PV, uid types.UID) bool {
	return slices.ContainsFunc(pvs, func(pv volume.PV) bool { return pv.UID == uid })
}

// sameVolume reports whether two PVs name one volume.
func sameVolume(a, b volume.PV) bool {
	return a.Driver == b.Driver && volume.HandleKey(a.Handle) == volume.HandleKey(b.Handle)
}

// tooLate returns the other PVs that keep the volume by now, and did not when they were read.
func (e *Engine) tooLate(s *Session) []volume.PV {
	f := &s.Facts
	return e.cached(e.Handles.Names(e.handle(&f.PV)), all, func(other *volume.PV) bool {
		return other.UID != f.PV.UID && !slices.Contains(s.Absent, other.UID) && keepsFrom(*other, f.PV) &&
			hasUnread([]volume.PV{*other}, f.Siblings)
	})
}

// sent records that the volume of a PV may be deleted without an answer.
func (e *Engine) sent(pv volume.PV) {
	e.Tracker.done(pv.UID, func(d *Done) { d.Sent, d.Claim = true, pv.Claim })
}

func (e *Engine) volumeDeleted(s *Session, reply Reply) (over bool, step Step) {
	a := s.Ask
	if reply.Outcome != OK {
		// A call that was refused or not sent says nothing about an earlier one.
		if reply.Outcome != Refused && reply.Outcome != NotSent {
			e.sent(a.PV)
		}
		return true, failed(a.Decision, ReasonVolumeFailedDelete, reply.Outcome)
	}
	s.Facts.Done = e.Tracker.done(a.PV.UID, func(d *Done) { d.VolumeDeleted, d.Claim = true, a.PV.Claim })
	step.TooLate = e.tooLate(s)
	if s.Facts.End.Gone {
		step.Besides = Report{Besides, ReasonUnprotectedReclaim, fmt.Sprintf("Volume %q.", a.PV.Handle)}
	}
	return false, step
}

// Repeated reports whether the peer of a companion has most likely sent the DeleteVolume of this session before.
func (s *Session) Repeated() bool {
	return s.Facts.Rules.Role == volume.RoleCompanion && s.Facts.History.SeenReleased
}
