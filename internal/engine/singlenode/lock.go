package singlenode

import (
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// LockFacts are the inputs of DecideLock for one claim. The zero value of every field means unknown, or favors keeping
// the lock.
type LockFacts struct {
	Rules Rules
	// Claim comes from the watch cache. A write is bound to its UID and, unless Removing, to its resourceVersion.
	Claim Claim
	// Holder is the pod with the name in the lock, from the watch cache or, if HolderRead is set, from a live read. If no
	// such pod exists, its UID is empty.
	Holder     User
	HolderRead session.Read
	// HolderGone reports that the watch has shown the end of the pod with the UID in the lock, which is final
	// (Tracker.Gone).
	HolderGone bool
}

// DecideLock returns the next step for the lock of one claim. The caller carries it out, adds the result to the facts,
// and calls DecideLock again, which keeps the lock as long as any fact is unknown.
//
// A lock is freed once a live read of its holder shows that the holder can no longer write, or the watch that it is
// gone. This also applies to a claim that is being deleted: its holder may be about to lose its gate, and the finalizer
// keeps the claim until that pod is gone, or released. A lock that names no pod, or a pod that does not use the claim,
// is damaged and freed, too. If the annotation named a running pod before the damage, the list before the next removal
// of a gate still finds that pod.
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
	case !f.holds() && f.HolderGone:
		return step(FreeLock, ReasonHolderGone)
	case !f.holds():
		return f.readThen(step(FreeLock, ReasonHolderGone), now)
	case !slices.Contains(f.Holder.Pod.Claims, c.Name):
		return f.readThen(step(FreeLock, ReasonLockDamaged), now)
	}
	d := f.Holder.evidence(f.Claim.Volume, f.Rules, f.HolderRead, now)
	switch {
	case f.Claim.Terminating && f.Holder.Pod.ShutDown():
		// The garbage collector keeps a pod that is deleted in the foreground until its claims are gone.
		return f.readThen(step(FreeLock, ReasonHolderReleased), now)
	case d.Action != Wait:
		return f.readThen(d, now)
	case d.Reason == ReasonHolderTerminating && !f.Holder.Pod.Held:
		return f.Holder.stays(now)
	case f.HolderRead.Order > 0:
		return d.again()
	}
	return d
}

// overdueAfter is the time after its grace period at which a terminating pod that is not held is reported.
const overdueAfter = time.Minute

// stays returns the wait for a terminating pod that is not held, about which the hold reports nothing.
func (u User) stays(now time.Time) Decision {
	if left := u.Pod.GraceEnds.Add(overdueAfter).Sub(now); left > 0 {
		return Decision{Reason: ReasonHolderTerminating, After: left}.again()
	}
	return wait(ReasonHolderStays).again()
}

// holds reports whether the pod named in the lock exists.
func (f LockFacts) holds() bool { return f.Holder.Pod.UID == f.Claim.Lock.UID }

// readThen puts a live read of the holder before a step.
func (f LockFacts) readThen(d Decision, now time.Time) Decision {
	if !f.HolderRead.Fresh(now) {
		return step(ReadHolder, d.Reason)
	}
	return d
}
