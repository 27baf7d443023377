package statefulset

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

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
// pod, or no longer left behind, starts again.
func (t *Tracker) saw(f Facts, now time.Time) Sight {
	s := t.Claims[f.Claim.UID]
	switch {
	case !f.abandoned():
		s.CondemnedSince = time.Time{}
	case s.CondemnedSince.IsZero():
		s.CondemnedSince = now
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
