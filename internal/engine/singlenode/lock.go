package singlenode

import (
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// LockFacts is all that is known about the lock of one claim. The zero value of every field means that the fact is not
// known, or speaks for keeping the lock.
type LockFacts struct {
	Rules Rules
	// Claim is from the watch cache: a write is bound to it as it was read.
	Claim Claim
	// Holder is the pod that has the name in the lock, from the watch cache or, when HolderRead is set, from a live read.
	// Its UID is empty where there is no pod of that name.
	Holder     User
	HolderRead session.Read
}

// DecideLock returns what to do next about the lock of one claim: carrying out a step adds to what is known, and
// DecideLock is called again with that. It keeps the lock whenever a fact is unknown.
//
// A lock is freed once a live read of its holder shows that it cannot write any more. Also that of a claim that is
// being deleted: a pod that has the lock may be about to lose its gate, and the claim stays until that pod is gone. A
// lock that names no pod, or one that does not use the claim, is freed, too: the pod that it named before somebody
// changed it is in the list that comes before the next gate goes, if it runs.
func DecideLock(f LockFacts, now time.Time) Decision {
	d := decideLock(f, now)
	d.Claim, d.User = f.Claim.Name, f.Claim.Lock.UID
	return d
}

func decideLock(f LockFacts, now time.Time) Decision {
	switch c := f.Claim; {
	case !c.Locked && !c.Kept:
		return wait(ReasonFree)
	case f.Rules.Removing:
		return step(FreeLock, ReasonUninstalled)
	case c.Lock.Name == "":
		return step(FreeLock, ReasonLockDamaged)
	case !f.holds():
		return f.readThen(step(FreeLock, ReasonHolderGone), now)
	case !slices.Contains(f.Holder.Pod.Claims, c.Name):
		return f.readThen(step(FreeLock, ReasonLockDamaged), now)
	}
	d := f.Holder.evidence(f.Claim.Volume, f.Rules, f.HolderRead, now)
	switch {
	case d.Action != Wait:
		return f.readThen(d, now)
	case f.HolderRead.Order > 0:
		return d.again()
	}
	return d
}

// holds reports whether the pod that the lock names exists.
func (f LockFacts) holds() bool { return f.Holder.Pod.UID == f.Claim.Lock.UID }

// readThen returns a step that a live read of the holder has to come before.
func (f LockFacts) readThen(d Decision, now time.Time) Decision {
	if !f.HolderRead.Fresh(now) {
		return step(ReadHolder, d.Reason)
	}
	return d
}
