package statefulset

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Ask is the call that a Session waits for, or no call in its zero value.
type Ask struct {
	// Action is the call.
	Action Action
	// Namespace and Name identify the object.
	Namespace, Name string
	// UID and ResourceVersion are the preconditions of a write; an empty ResourceVersion leaves only the UID.
	UID             types.UID
	ResourceVersion string
	// Mark and Owners are the values that PatchClaim sets. Without a mark, the annotation is removed.
	Mark   Mark
	Owners []metav1.OwnerReference
}

// Reply is the answer to an Ask, with only the fields of its call set.
type Reply struct {
	Outcome session.Outcome
	// Found reports that a read found an object of the name, which is in Claim, Pod or Set.
	Found bool
	Claim Claim
	Pod   Pod
	Set   Set
}

// maxSteps bounds the steps of one session: at most four reads and a write.
const maxSteps = 12

// Session is the work on one claim, from its key to the next wait. It issues one Ask at a time.
type Session struct {
	session.State[Facts, Decision, Reason]
}

// Begin starts a session with these facts, records the state of the claim in t, and advances to the first Ask or the
// End.
func Begin(t *Tracker, f Facts, now time.Time) Session {
	f.Sight = t.saw(f, now)
	var s Session
	s.Facts = f
	s.decide(now)
	return s
}

func (s *Session) decide(now time.Time) {
	s.Decided(Decide(s.Facts, now), s.Facts.Rules.DryRun, maxSteps)
}

// Ask returns the pending call, the zero Ask after the End.
func (s *Session) Ask() Ask {
	if s.End != session.NotEnded {
		return Ask{}
	}
	f := s.Facts
	ask := Ask{Action: s.Decision.Action, Namespace: f.Claim.Namespace, Name: f.Claim.Name, UID: f.Claim.UID}
	switch s.Decision.Action {
	case ReadSet:
		ask.Name, ask.UID = f.SetName, ""
	case ReadPod:
		ask.Name, ask.UID = Set{Name: f.SetName}.PodName(f.Ordinal), ""
	case DeletePod:
		ask.Name, ask.UID = f.Pod.Name, f.Pod.UID
	case DeleteClaim:
		ask.ResourceVersion = f.Claim.ResourceVersion
	case PatchClaim:
		ask.ResourceVersion = f.Claim.ResourceVersion
		w := f.wanted()
		ask.Mark, ask.Owners = w.Mark, w.Owners
	case ReadClaim, Wait:
	}
	return ask
}

// Answer applies the reply to the pending Ask, records the state of the claim in t, and advances to the next Ask or to
// the End. sent is when the call was made.
func (s *Session) Answer(t *Tracker, r Reply, sent, now time.Time) {
	if s.Took(r.Outcome) {
		s.succeeded(t, r, sent)
	}
	s.Facts.Sight = t.saw(s.Facts, now)
	if s.End == session.NotEnded {
		s.decide(now)
	}
}

func (s *Session) succeeded(t *Tracker, r Reply, sent time.Time) {
	f := &s.Facts
	switch s.Decision.Action {
	case ReadClaim:
		if !r.Found || r.Claim.UID != f.Claim.UID {
			s.End = session.ObjectGone
			return
		}
		f.Claim, f.ClaimRead = r.Claim, s.Live(sent)
	case ReadPod:
		f.Pod, f.PodSeen, f.PodRead = r.Pod, SeenOf(r.Found), s.Live(sent)
	case ReadSet:
		f.Set, f.SetSeen, f.SetRead = r.Set, SeenOf(r.Found), s.Live(sent)
	case PatchClaim:
		t.patched(f.Claim.UID, f.wanted().String())
		s.End = session.Written
	default:
		s.End = session.Written
	}
}

// Requeue returns when the next session begins after this one has ended.
func (s *Session) Requeue() session.Requeue {
	r := s.State.Requeue()
	if r == session.RequeueNever && s.End == session.Waiting && s.ReadCount > 0 {
		return session.RequeueRetry // the watch lags behind the read, and may skip its result
	}
	return r
}

// Tracker has the times at which one process saw states of claims and sets begin, by UID. A process that starts without
// it waits again, and never for less time. It is not safe for concurrent use.
type Tracker struct {
	Claims map[types.UID]Sight
	Sets   map[types.UID]SetSight
}

// NewTracker returns an empty Tracker.
func NewTracker() *Tracker {
	return &Tracker{Claims: map[types.UID]Sight{}, Sets: map[types.UID]SetSight{}}
}

// saw records the state of a claim and returns its Sight. A claim that is no longer condemned, or no longer without a
// pod, or no longer left behind, starts again. So does one whose set had a generation that nothing has shown, in which
// it may have been scaled up.
func (t *Tracker) saw(f Facts, now time.Time) Sight {
	s := t.Claims[f.Claim.UID]
	switch {
	case !f.abandoned():
		s.CondemnedSince, s.Generation = time.Time{}, 0
	case s.CondemnedSince.IsZero(), f.Set.Generation > s.Generation+1:
		s.CondemnedSince, s.Generation = now, f.Set.Generation
	default:
		s.Generation = max(s.Generation, f.Set.Generation)
	}
	switch {
	case !f.leftBehind():
		s.LeftSince = time.Time{}
	case s.LeftSince.IsZero():
		s.LeftSince = now
	}
	return t.keep(f.Claim.UID, s)
}

// patched records a write of mark and owners to a claim, and counts equal writes in a row.
func (t *Tracker) patched(claim types.UID, what string) {
	s := t.Claims[claim]
	if s.Added != what {
		s.Added, s.Additions = what, 0
	}
	s.Additions++
	t.keep(claim, s)
}

func (t *Tracker) keep(claim types.UID, s Sight) Sight {
	if s == (Sight{}) {
		delete(t.Claims, claim)
	} else {
		t.Claims[claim] = s
	}
	return s
}

// ForgetClaim and ForgetSet remove the records of an object that is gone.
func (t *Tracker) ForgetClaim(claim types.UID) { delete(t.Claims, claim) }
func (t *Tracker) ForgetSet(set types.UID)     { delete(t.Sets, set) }
