package reclaim

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Breaker is the brake: it counts the volumes that become deletable, and pauses all deletions if they exceed the
// limit. Without a limit, it is always off.
type Breaker struct {
	// Limit is the number of volumes that may become deletable within Window, 0 for no limit.
	Limit  int
	Window time.Duration
	// Recent are the PVs that became deletable, in the order of the times, and counted are their UIDs.
	Recent  []becameDue
	counted map[types.UID]struct{}
	State   Brake
	// Leading is true if this replica deletes. A replica that does not lead counts as well, but pauses no deletions.
	Leading bool
	// Lease is the UID of the Lease that had the brake's annotation last, empty for none since the brake turned on. Only
	// the removal of the annotation from this Lease releases the brake: a Lease that is deleted or made anew is no
	// person's decision.
	Lease types.UID
	// Unwritten is true if the Lease does not have the annotation although the brake is on.
	Unwritten bool
}

// becameDue is a PV and the time at which it became deletable.
type becameDue struct {
	pv types.UID
	at time.Time
}

// NewBreaker returns a Breaker that has counted no volumes.
func NewBreaker(limit int, window time.Duration) Breaker {
	b := Breaker{Limit: limit, Window: window, counted: map[types.UID]struct{}{}}
	if limit == 0 {
		b.State = BrakeOff
	}
	return b
}

// Count counts a volume that became deletable. The first volume beyond the limit turns the brake on, so that no
// deletion begins after it; tripped reports that.
func (b *Breaker) Count(pv types.UID, now time.Time) (tripped bool) {
	if b.Limit == 0 {
		return false
	}
	b.add(pv, now)
	return b.judge(now)
}

// add adds a PV that is not counted yet, nearly always as the last.
func (b *Breaker) add(pv types.UID, now time.Time) {
	if _, counted := b.counted[pv]; counted {
		return
	}
	b.counted[pv] = struct{}{}
	i, _ := slices.BinarySearchFunc(b.Recent, now, func(one becameDue, at time.Time) int {
		if one.at.After(at) {
			return 1
		}
		return -1
	})
	b.Recent = slices.Insert(b.Recent, i, becameDue{pv, now})
}

// recount counts PVs as if they became deletable now.
func (b *Breaker) recount(pvs []types.UID, now time.Time) {
	for _, pv := range pvs {
		delete(b.counted, pv)
	}
	b.Recent = slices.DeleteFunc(b.Recent, func(one becameDue) bool {
		_, counted := b.counted[one.pv]
		return !counted
	})
	for _, pv := range pvs {
		b.add(pv, now)
	}
}

// forget resets the count.
func (b *Breaker) forget() {
	b.Recent = nil
	clear(b.counted)
}

// judge turns the brake on if the volumes exceed the limit. It runs for each volume of a mass deletion, so it only
// looks at the expired entries and one more.
func (b *Breaker) judge(now time.Time) (tripped bool) {
	if len(b.Recent) <= b.Limit {
		return false
	}
	for len(b.Recent) > 0 && now.Sub(b.Recent[0].at) > b.Window {
		delete(b.counted, b.Recent[0].pv)
		b.Recent = b.Recent[1:]
	}
	if len(b.Recent) <= b.Limit || !b.Leading || b.State == BrakeOn {
		return false
	}
	b.State, b.Lease, b.Unwritten = BrakeOn, "", true
	return true
}

// Lead begins and ends this replica's term as leader.
func (b *Breaker) Lead(leading bool) {
	b.Leading = leading
	if b.Limit == 0 {
		return
	}
	b.State, b.Lease, b.Unwritten = BrakeUnknown, "", false
}

// Learn records whether the Lease has the brake's annotation. lease is the UID of the Lease, empty if it does not
// exist. Learn reports in write that the annotation has to be added, and in changed that deletions pause or resume.
func (b *Breaker) Learn(lease types.UID, on bool, now time.Time) (write, changed bool) {
	before := b.State
	switch {
	case on:
		b.State, b.Lease, b.Unwritten = BrakeOn, lease, false
	case b.State == BrakeOn && (lease == "" || lease != b.Lease):
		b.Unwritten = b.Unwritten || b.Lease != ""
	default:
		if b.State == BrakeOn {
			b.forget() // a person resumed the deletions: these volumes count no more
		}
		b.State, b.Lease, b.Unwritten = BrakeOff, "", false
		b.judge(now)
	}
	return b.Unwritten, b.State != before
}

// Wrote records that the Lease with this UID has the brake's annotation. It is empty in a dry run, which writes none.
func (b *Breaker) Wrote(lease types.UID) { b.Lease, b.Unwritten = lease, false }
