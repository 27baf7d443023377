package reclaim

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

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
		// The driver is still working and ends by itself, which deserves no Event.
		step.Result, step.Report = Soon, Report{}
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
		f.Claim = reply.Claim
		f.Claim.Of, f.Claim.Read = a.PV.Claim, a.Read
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

// pvsListed records whether another PV names the volume.
func (s *Session) pvsListed(reply Reply) {
	pv := s.Ask.PV
	for _, other := range reply.PVs {
		if sameVolume(other, pv) && other.UID != pv.UID {
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

func (e *Engine) volumeDeleted(s *Session, reply Reply) (over bool, step Step) {
	a := s.Ask
	if reply.Outcome != OK {
		// A call that was refused or not sent says nothing about an earlier one.
		if reply.Outcome != Refused && reply.Outcome != NotSent {
			e.Tracker.done(a.PV.UID, func(d *Done) { d.Sent, d.Claim = true, a.PV.Claim })
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
