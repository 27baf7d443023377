package statefulset

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Tracker is since when one process has seen what of claims and sets. A process that starts without it waits again,
// and no shorter than another. It is not safe for concurrent use.
type Tracker struct {
	Claims map[types.UID]Sight
	Sets   map[types.UID]SetSight
}

// NewTracker returns a Tracker without records.
func NewTracker() *Tracker {
	return &Tracker{Claims: map[types.UID]Sight{}, Sets: map[types.UID]SetSight{}}
}

// saw records what the facts show of a claim and returns its Sight: the times in which it has been condemned and
// without a pod, or left behind, end with each sign of the contrary.
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

// patched records that a claim was given a mark and owners: the same as the last time, or others.
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

// ForgetClaim and ForgetSet end what is known of an object that is gone.
func (t *Tracker) ForgetClaim(claim types.UID) { delete(t.Claims, claim) }
func (t *Tracker) ForgetSet(set types.UID)     { delete(t.Sets, set) }
