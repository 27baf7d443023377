package twins

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Rules are the settings that a Session follows.
type Rules struct {
	// DryRun ends a session before its first write.
	DryRun bool
	// RetryStart and RetryMax bound the delay between tries to delete one volume, which doubles each time.
	RetryStart, RetryMax time.Duration
}

// pluginGoneDelay is how many times the longest usual delay lies between tries while there is no plugin: only another
// kube-controller-manager can have one.
const pluginGoneDelay = 12

// Call is a request to the API server. The zero value is none.
type Call uint8

const (
	// NoCall is no call.
	NoCall Call = iota
	// GetPV reads a PV, GetClaim a claim. Neither fails where there is none.
	GetPV
	GetClaim
	// ListAttachments counts the VolumeAttachments of some PVs.
	ListAttachments
	// CreatePV creates the twin of the PV that was read last: see NewTwin.
	CreatePV
	// PatchFinalizers, PatchPolicy and DeletePV write to a PV.
	PatchFinalizers
	PatchPolicy
	DeletePV
)

// Ask is a call that a Session waits for, and what it is about. The zero value: it waits for none.
type Ask struct {
	Call Call
	// Action is the step that the call belongs to.
	Action Action
	// Name is the PV's. A write is bound to UID and ResourceVersion; without ResourceVersion it is bound to the UID
	// alone.
	Name            string
	UID             types.UID
	ResourceVersion string
	// Claim is what GetClaim reads.
	Claim volume.ClaimRef
	// PVs are those whose attachments ListAttachments counts.
	PVs []string
	// Add and Remove are finalizers of PatchFinalizers.
	Add, Remove []string
	// Policy is what PatchPolicy sets.
	Policy volume.Policy
}

// Outcome is how a call ended. The zero value: it did what it was for.
type Outcome uint8

const (
	// Succeeded: the call did what it was for.
	Succeeded Outcome = iota
	// Conflict: nothing was done, for the object is not as it was read, or exists already.
	Conflict
	// Gone: nothing was done, for the object does not exist any more.
	Gone
	// Failed: the call was refused or not answered. It may have been carried out.
	Failed
)

// Reply is the answer to an Ask.
type Reply struct {
	Outcome Outcome
	// Found: GetPV or GetClaim found one.
	Found bool
	// PV is what GetPV found, or the PV after a write.
	PV PV
	// ClaimUID and VolumeName are of the claim that GetClaim found.
	ClaimUID   types.UID
	VolumeName string
	// Attachments is what ListAttachments counted.
	Attachments int
}

// End is how a session ended. The zero value: it has not.
type End uint8

const (
	// NotEnded: the session waits for the answer to its Ask.
	NotEnded End = iota
	// Waiting: there is nothing to do now, for the Decision's reason.
	Waiting
	// Skipped: the Decision is what a dry run leaves out.
	Skipped
	// Written: the last write succeeded, and its own event begins the next session.
	Written
	// ObjectGone: what the session is about does not exist any more.
	ObjectGone
	// Conflicted: what was to be written had changed.
	Conflicted
	// CallFailed: the API server refused a call or did not answer it.
	CallFailed
	// TooSlow: each read was too old when the next was answered.
	TooSlow
)

// maxSteps bounds the steps of one session: at most six come before a write and two after it. Only reads that are too
// old before the next is answered take more.
const maxSteps = 16

// Session is the work on one PV, from its key to the next wait. It returns one Ask after the other.
type Session struct {
	Rules Rules
	Facts Facts
	// Reads counts the live reads, and Steps the steps.
	Reads, Steps int
	// Decision is the step that is carried out, or after End the last one.
	Decision Decision
	// Siblings, SiblingsRead and SiblingNeeded are what the step ReadSiblings has read so far, and Unread how many are
	// left. ClaimUnread: the claim of the last of Siblings is read next.
	Siblings      []PV
	SiblingsRead  Read
	SiblingNeeded string
	Unread        int
	ClaimUnread   bool
	End           End
}

// Begin returns a session on these facts, up to its first Ask or its End.
func Begin(f Facts, rules Rules, now time.Time) Session {
	s := Session{Rules: rules, Facts: f}
	s.decide(now)
	return s
}

// decide begins the next step.
func (s *Session) decide(now time.Time) {
	s.Decision = Decide(s.Facts, now)
	s.Steps++
	switch {
	case s.Decision.Action == Wait:
		s.End = Waiting
	case s.Steps > maxSteps:
		s.End = TooSlow
	case s.Rules.DryRun && !s.Decision.Action.Reads():
		s.End = Skipped
	default:
		s.Siblings, s.SiblingsRead, s.SiblingNeeded, s.Unread = nil, Read{}, "", len(s.Facts.Siblings)
	}
}

// Ask returns the call that the session waits for, the zero Ask after its End.
func (s *Session) Ask() Ask {
	switch a := s.Decision.Action; {
	case s.End != NotEnded:
		return Ask{}
	case a.Reads():
		return s.askRead(a)
	default:
		return s.askWrite(a)
	}
}

// askRead returns the call of an action that only reads.
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
		return Ask{Call: GetPV, Action: a, Name: TwinName(f.PV.Name)}
	default:
		return Ask{}
	}
}

// askWrite returns the call of an action that writes.
func (s *Session) askWrite(a Action) Ask {
	f := &s.Facts
	switch a {
	case CreateTwin:
		return Ask{Call: CreatePV, Action: a, Name: TwinName(f.PV.Name)}
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

// write returns a call that writes to a PV, bound to the PV as it was read.
func write(call Call, a Action, pv PV, what Ask) Ask {
	what.Call, what.Action, what.Name, what.UID, what.ResourceVersion = call, a, pv.Name, pv.UID, pv.ResourceVersion
	return what
}

// names returns the names under which the volume may be attached.
func (f Facts) names() []string {
	names := []string{f.PV.Name, TwinName(f.PV.Name)}
	for _, other := range f.Siblings {
		names = append(names, other.Name)
	}
	return names
}

// Answer takes the reply to the session's Ask, which was sent at that time, and continues up to the next Ask or the
// End. The PV after a write is recorded in t.
func (s *Session) Answer(t *Tracker, pvs PVs, r Reply, sent, now time.Time) {
	switch {
	case r.Outcome == Succeeded:
		s.succeeded(t, pvs, r, sent, now)
	case r.Outcome == Conflict && s.Decision.Action == CreateTwin:
		s.Facts.TwinConflict = true
	case r.Outcome == Conflict:
		s.End = Conflicted
	case r.Outcome == Gone:
		s.End = ObjectGone
	default:
		s.End = CallFailed
	}
	if s.End == NotEnded && (s.Decision.Action != ReadSiblings || s.siblingsRead()) {
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
		s.End = Written
	case DeleteTwin:
		s.twinDeleted(t, now)
	case AddFinalizer, RemoveFinalizer, RemoveFinalizerByUID:
		t.expect(r.PV, pvs)
		s.End = Written
	case Wait:
	}
}

// live numbers a live read that was sent at this time.
func (s *Session) live(sent time.Time) Read {
	s.Reads++
	return Read{Sent: sent, Order: s.Reads}
}

// read adds what a live read found.
func (s *Session) read(t *Tracker, pvs PVs, r Reply, sent time.Time) {
	f := &s.Facts
	switch s.Decision.Action {
	case ReadClaim:
		f.Claim = ClaimFacts{Read: s.live(sent), Of: f.PV.Claim, Found: r.Found, UID: r.ClaimUID, VolumeName: r.VolumeName}
	case ReadAttachments:
		f.Attachments = AttachmentFacts{Read: s.live(sent), Count: r.Attachments}
	case ReadSiblings:
		s.readSibling(r, sent)
	case ReadOriginal:
		f.Original = OriginalFacts{Read: s.live(sent), Gone: !r.Found || r.PV.UID != f.Twin.TwinOf}
	case ReadTwin:
		if !r.Found {
			s.End = Conflicted
			return
		}
		// It is judged next; before its policy is set to Delete, all is read a second time, as with any other.
		f.Claim, f.Attachments, f.SiblingsRead, f.PVRead, f.TwinConflict = ClaimFacts{}, AttachmentFacts{}, Read{}, Read{},
			false
		s.twinIs(t, pvs, r.PV)
	default:
		if !r.Found || r.PV.UID != f.PV.UID {
			s.End = ObjectGone
			return
		}
		f.PV, f.PVRead = r.PV, s.live(sent)
	}
}

// readSibling adds one of the other PVs of the volume, then its claim if the PV is to be deleted too: a claim that was
// restored from a backup keeps the volume. A PV that is gone needs the volume no more.
func (s *Session) readSibling(r Reply, sent time.Time) {
	if s.SiblingsRead.Order == 0 {
		s.SiblingsRead = s.live(sent)
	}
	switch {
	case s.ClaimUnread:
		other := s.Siblings[len(s.Siblings)-1]
		claim := ClaimFacts{Read: s.SiblingsRead, Of: other.Claim, Found: r.Found, UID: r.ClaimUID, VolumeName: r.VolumeName}
		if Needed(other, claim) {
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

// siblingsRead reports whether the step ReadSiblings has read them all.
func (s *Session) siblingsRead() bool { return s.Unread == 0 && !s.ClaimUnread }

// twinIs records the twin as it is after a write of ours.
func (s *Session) twinIs(t *Tracker, pvs PVs, twin PV) {
	s.Facts.Twin, s.Facts.TwinFound = twin, true
	t.expect(twin, pvs)
}

// twinDeleted records that the API server accepted the deletion of the twin. One that failed begins the delay until
// the next try.
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

// Subject returns the PV that the session is about.
func (s *Session) Subject() PV {
	if s.Facts.PV.UID == "" {
		return s.Facts.Twin
	}
	return s.Facts.PV
}

// Requeue is when another session begins.
type Requeue uint8

const (
	// RequeueNever: an event begins it.
	RequeueNever Requeue = iota
	// RequeueSoon: in a moment. The change's own event begins it too; the delay is for the case that the event came
	// before the answer.
	RequeueSoon
	// RequeueRetry: after a delay that grows with each try.
	RequeueRetry
	// RequeueAfter: after Decision.After.
	RequeueAfter
)

// Requeue returns when another session begins after this one has ended.
func (s *Session) Requeue() Requeue {
	switch {
	case s.End == Conflicted:
		return RequeueSoon
	case s.End == CallFailed, s.End == TooSlow, s.Decision.Timed:
		return RequeueRetry
	case s.Decision.After > 0:
		return RequeueAfter
	}
	return RequeueNever
}

// Reason returns the reason to report after the session has ended, empty for none.
func (s *Session) Reason() Reason {
	switch {
	case s.End == Skipped:
		return ReasonDryRun
	case s.End == TooSlow, s.End == CallFailed && s.Decision.Action.Reads():
		return ReasonAPIReadFailed
	case s.End == CallFailed:
		return ReasonAPIWriteFailed
	case s.End != Waiting:
		return ""
	}
	switch s.Decision.Reason {
	case ReasonTwinNotReleased, ReasonTwinDeleting, ReasonTwinTerminating:
		// While one try follows another, the reason is that tries fail: it is reported once, not with each.
		if s.Facts.Failure != (Failure{}) {
			return s.Facts.Failure.reason()
		}
	default:
	}
	return s.Decision.Reason
}
