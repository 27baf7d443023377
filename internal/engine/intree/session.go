package intree

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Rules are the settings of a Session.
type Rules struct {
	// DryRun ends a session before its first write.
	DryRun bool
	// RetryStart and RetryMax are the shortest and longest delay between tries to delete one volume, which doubles each
	// time.
	RetryStart, RetryMax time.Duration
}

// pluginGoneDelay multiplies RetryMax while the plugin is missing, because only another kube-controller-manager can
// have it.
const pluginGoneDelay = 12

// Call is a request to the API server; the zero value is NoCall.
type Call uint8

const (
	// NoCall is no call.
	NoCall Call = iota
	// GetPV reads a PV, and GetClaim a claim; a missing object is not an error.
	GetPV
	GetClaim
	// ListAttachments counts the VolumeAttachments of the given PVs.
	ListAttachments
	// CreatePV creates the twin of the PV that was read last: see NewTwin.
	CreatePV
	// PatchFinalizers, PatchPolicy and DeletePV write to a PV.
	PatchFinalizers
	PatchPolicy
	DeletePV
)

// Ask is a call that a Session waits for, with its arguments; the zero value is no call.
type Ask struct {
	Call Call
	// Action is the step that the call belongs to.
	Action Action
	// Name is the PV's, and a write is bound to UID and ResourceVersion; without ResourceVersion it is bound to the UID
	// alone.
	Name            string
	UID             types.UID
	ResourceVersion string
	// Claim is the claim that GetClaim reads.
	Claim volume.ClaimRef
	// PVs are the PVs whose attachments ListAttachments counts.
	PVs []string
	// Add and Remove are the finalizers that PatchFinalizers adds and removes.
	Add, Remove []string
	// Policy is the policy that PatchPolicy sets.
	Policy volume.Policy
}

// Reply is the answer to an Ask.
type Reply struct {
	Outcome session.Outcome
	// Found is true if GetPV found the PV.
	Found bool
	// PV is the PV that GetPV found, or the PV after a write.
	PV PV
	// Claim is the result of GetClaim.
	Claim pvclaim.Result
	// Attachments is the count of ListAttachments.
	Attachments int
}

// maxSteps bounds the steps of one session: at most six precede a write and two follow it. Only live reads that expire
// before the next one is answered take more.
const maxSteps = 16

// Session is the work on one PV, from its key to the next wait; it returns one Ask at a time.
type Session struct {
	session.State[Facts, Decision, Reason]
	Rules Rules
	// Siblings, SiblingsRead and SiblingNeeded are the results of the step ReadSiblings so far, and Unread is the number
	// of siblings left. If ClaimUnread, the claim of the last of Siblings is read next.
	Siblings      []PV
	SiblingsRead  session.Read
	SiblingNeeded string
	Unread        int
	ClaimUnread   bool
}

// Begin returns a session for the facts, advanced to its first Ask or its End.
func Begin(f Facts, rules Rules, now time.Time) Session {
	s := Session{Rules: rules}
	s.Facts = f
	s.decide(now)
	return s
}

func (s *Session) decide(now time.Time) {
	if s.Decided(Decide(s.Facts, now), s.Rules.DryRun, maxSteps); s.End == session.NotEnded {
		s.Siblings, s.SiblingsRead, s.SiblingNeeded, s.Unread = nil, session.Read{}, "", len(s.Facts.Siblings)
	}
}

// Ask returns the call that the session waits for, or the zero Ask after its End.
func (s *Session) Ask() Ask {
	switch a := s.Decision.Action; {
	case s.End != session.NotEnded:
		return Ask{}
	case a.Kind() == session.Reads:
		return s.askRead(a)
	default:
		return s.askWrite(a)
	}
}

func (s *Session) askRead(a Action) Ask {
	f := &s.Facts
	switch a {
	case ReadClaim:
		return Ask{Call: GetClaim, Action: a, Claim: f.PV.Claim}
	case ReadAttachments:
		return Ask{Call: ListAttachments, Action: a, PVs: f.names()}
	case ReadSiblings:
		if s.ClaimUnread {
			return Ask{Call: GetClaim, Action: a, Claim: s.Siblings[len(s.Siblings)-1].Claim}
		}
		return Ask{Call: GetPV, Action: a, Name: f.Siblings[len(f.Siblings)-s.Unread].Name}
	case ReadPV:
		return Ask{Call: GetPV, Action: a, Name: f.PV.Name}
	case ReadOriginal:
		return Ask{Call: GetPV, Action: a, Name: f.Twin.Original}
	case ReadTwin:
		return Ask{Call: GetPV, Action: a, Name: volume.TwinName(f.PV.Name)}
	default:
		return Ask{}
	}
}

func (s *Session) askWrite(a Action) Ask {
	f := &s.Facts
	switch a {
	case CreateTwin:
		return Ask{Call: CreatePV, Action: a, Name: volume.TwinName(f.PV.Name)}
	case SetTwinDelete:
		return write(PatchPolicy, a, f.Twin, Ask{Policy: volume.PolicyDelete})
	case SetTwinRetain:
		return write(PatchPolicy, a, f.Twin, Ask{Policy: volume.PolicyRetain})
	case DeleteTwin:
		return write(DeletePV, a, f.Twin, Ask{})
	case RemoveTwinFinalizer:
		return write(PatchFinalizers, a, f.Twin, Ask{Remove: []string{Finalizer}})
	case AddFinalizer:
		add, remove := f.protection()
		return write(PatchFinalizers, a, f.PV, Ask{Add: add, Remove: remove})
	case RemoveFinalizer:
		return write(PatchFinalizers, a, f.PV, Ask{Remove: f.removable()})
	case RemoveFinalizerByUID:
		ask := write(PatchFinalizers, a, f.PV, Ask{Remove: f.removable()})
		ask.ResourceVersion = ""
		return ask
	default:
		return Ask{}
	}
}

// write returns a call that writes to a PV, bound to the state that was read.
func write(call Call, a Action, pv PV, what Ask) Ask {
	what.Call, what.Action, what.Name, what.UID, what.ResourceVersion = call, a, pv.Name, pv.UID, pv.ResourceVersion
	return what
}

// names returns the names under which the volume may be attached.
func (f Facts) names() []string {
	names := []string{f.PV.Name, volume.TwinName(f.PV.Name)}
	for _, other := range f.Siblings {
		names = append(names, other.Name)
	}
	return names
}

// Answer applies the reply to the pending Ask, whose call was made at sent, and advances to the next Ask or the End. It
// records the PV after a write in t.
func (s *Session) Answer(t *Tracker, pvs PVs, r Reply, sent, now time.Time) {
	switch {
	case r.Outcome == session.Conflict && s.Decision.Action == CreateTwin:
		s.Facts.TwinConflict = true
	case s.Took(r.Outcome):
		s.succeeded(t, pvs, r, sent, now)
	}
	if s.End == session.NotEnded && (s.Decision.Action != ReadSiblings || s.siblingsRead()) {
		s.decide(now)
	}
}

func (s *Session) succeeded(t *Tracker, pvs PVs, r Reply, sent, now time.Time) {
	switch s.Decision.Action {
	case ReadClaim, ReadAttachments, ReadSiblings, ReadPV, ReadOriginal, ReadTwin:
		s.read(t, pvs, r, sent)
	case CreateTwin, SetTwinDelete, SetTwinRetain:
		s.twinIs(t, pvs, r.PV)
	case RemoveTwinFinalizer:
		s.twinIs(t, pvs, r.PV)
		s.End = session.Written
	case DeleteTwin:
		s.twinDeleted(t, now)
	case AddFinalizer, RemoveFinalizer, RemoveFinalizerByUID:
		t.expect(r.PV, pvs)
		s.End = session.Written
	case Wait:
	}
}

// read adds the result of a live read to the facts.
func (s *Session) read(t *Tracker, pvs PVs, r Reply, sent time.Time) {
	f := &s.Facts
	switch s.Decision.Action {
	case ReadClaim:
		f.Claim, f.ClaimRead = r.Claim, s.Live(sent)
		f.Claim.Of = f.PV.Claim
	case ReadAttachments:
		f.Attachments, f.AttachmentsRead = r.Attachments, s.Live(sent)
	case ReadSiblings:
		s.readSibling(r, sent)
	case ReadOriginal:
		f.OriginalGone, f.OriginalRead = !r.Found || r.PV.UID != f.Twin.TwinOf, s.Live(sent)
	case ReadTwin:
		if !r.Found {
			s.End = session.Conflicted
			return
		}
		// The twin is judged next, and before its policy is set to Delete, all facts are read a second time, as for any twin.
		f.Claim, f.Attachments, f.TwinConflict = pvclaim.Result{}, 0, false
		f.ClaimRead, f.AttachmentsRead = session.Read{}, session.Read{}
		f.SiblingsRead, f.PVRead = session.Read{}, session.Read{}
		s.twinIs(t, pvs, r.PV)
	default:
		if !r.Found || r.PV.UID != f.PV.UID {
			s.End = session.ObjectGone
			return
		}
		f.PV, f.PVRead = r.PV, s.Live(sent)
	}
}

// readSibling adds one of the other PVs of the volume, then its claim if the PV is to be deleted too, because a claim
// that was restored from a backup keeps the volume. A PV that is gone no longer needs the volume.
func (s *Session) readSibling(r Reply, sent time.Time) {
	if s.SiblingsRead.Order == 0 {
		s.SiblingsRead = s.Live(sent)
	}
	switch {
	case s.ClaimUnread:
		other := s.Siblings[len(s.Siblings)-1]
		r.Claim.Of = other.Claim
		if Needed(other, r.Claim) {
			s.SiblingNeeded = other.Name
		}
		s.ClaimUnread = false
	default:
		s.Unread--
		if r.Found && r.PV.Source == s.Facts.PV.Source {
			s.Siblings = append(slices.Clip(s.Siblings), r.PV) // a copy of the session keeps its own
			s.ClaimUnread = r.PV.deletable()
		}
	}
	if s.siblingsRead() {
		s.Facts.Siblings, s.Facts.SiblingsRead, s.Facts.SiblingNeeded = s.Siblings, s.SiblingsRead, s.SiblingNeeded
	}
}

// siblingsRead reports whether the step ReadSiblings is complete.
func (s *Session) siblingsRead() bool { return s.Unread == 0 && !s.ClaimUnread }

// twinIs records the twin after a write of ours.
func (s *Session) twinIs(t *Tracker, pvs PVs, twin PV) {
	s.Facts.Twin, s.Facts.TwinFound = twin, true
	t.expect(twin, pvs)
}

// twinDeleted records that the API server accepted the deletion of the twin. For a failed twin, it starts the delay
// until the next try.
func (s *Session) twinDeleted(t *Tracker, now time.Time) {
	f := &s.Facts
	t.DeletionAccepted[f.Twin.UID] = struct{}{}
	if f.Twin.Phase == volume.PhaseFailed && f.PV.UID != "" {
		first, most := s.Rules.RetryStart, s.Rules.RetryMax
		if f.Twin.PluginGone {
			first, most = pluginGoneDelay*most, pluginGoneDelay*most
		}
		t.failed(f.PV.UID, f.Twin, now, first, most)
		f.Failure = t.Failures[f.PV.UID].Failure
	}
	f.Twin.Terminating = true
}

// Subject returns the PV that the session works on.
func (s *Session) Subject() PV {
	if s.Facts.PV.UID == "" {
		return s.Facts.Twin
	}
	return s.Facts.PV
}

// Requeue returns when another session begins after the End of this one.
func (s *Session) Requeue() session.Requeue {
	r := s.State.Requeue()
	if s.Decision.Timed && r != session.RequeueSoon {
		return session.RequeueRetry
	}
	return r
}

// Reason returns the reason to report after the End of the session, or an empty reason for nothing to report.
func (s *Session) Reason() Reason {
	if s.End == session.Written {
		return ""
	}
	reason := s.State.Reason()
	switch reason {
	case ReasonTwinNotReleased, ReasonTwinDeleting, ReasonTwinTerminating:
		// While one try follows another, the failure is the reason: it is reported once, not with each try.
		if s.Facts.Failure != (Failure{}) {
			return s.Facts.Failure.reason()
		}
	default:
	}
	return reason
}
