package singlenode

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Facts is all that is known about one gated pod at one moment. The zero value of every field means that the fact is
// not known, or speaks for leaving the gate.
type Facts struct {
	Rules Rules
	// Mode is that of the pod's namespace, from the watch cache or, when ModeRead is set, from a live read.
	Mode     Mode
	ModeRead session.Read
	Pod      Pod
	// Claims has a ClaimFacts for each of the pod's claims.
	Claims []ClaimFacts
	// Users are the other pods that name one of the claims and have no gate, as the live list UsersRead has found them.
	Users     []User
	UsersRead session.Read
}

// ClaimFacts is what is known about a claim of a gated pod.
type ClaimFacts struct {
	// Claim is from the watch cache or, when Read is set, from a live read or the reply to a write. That nothing asks for
	// its lock counts only by a live read after one of the namespace.
	Claim Claim
	Read  session.Read
	// Holder is the pod that the lock names, as the watch shows it. It only explains.
	Holder User
}

// Decision is the next step, and why.
type Decision struct {
	Action Action
	Reason Reason
	// After, if not zero, is how long this wait lasts at most.
	After time.Duration
	// Claim is the name of the claim that the step is about, or that is waited for. Empty for the pod as a whole.
	Claim string
	// User is the UID of the pod that uses the claim without a lock, whose node or its fence is read, or that
	// has the lock.
	User types.UID
}

// recheckAfter is after how long a wait for what only a live read has shown begins again. A watch can skip a pod that
// was created and removed between two lists of it, so that no event ends such a wait.
const recheckAfter = time.Minute

// again returns a wait that lasts no longer than recheckAfter.
func (d Decision) again() Decision {
	if d.After == 0 || d.After > recheckAfter {
		d.After = recheckAfter
	}
	return d
}

func wait(why Reason) Decision           { return Decision{Action: Wait, Reason: why} }
func step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }

// Decide returns what to do next about one gated pod: carrying out a step adds to what is known, and Decide is called
// again with that. It leaves the gate whenever a fact is unknown.
//
// The order is what makes it safe: the locks come first, by compare-and-swap. The list of the pods comes after them: a
// pod that uses a claim without its lock, such as one that was created before the namespace asked, is in it. The gate
// goes last.
//
// A pod takes no lock while it has other gates: a queue may admit another pod that needs the claim, and never this one.
// Nor while it sees that another has a lock that it needs. Pods take their locks in the order of the
// claims' names, so that they cannot wait for each other in a circle. Names and not UIDs, because a claim that is
// deleted and created again has another UID.
//
// now is the time by which reads are judged too old, and waits over.
func Decide(f Facts, now time.Time) Decision {
	switch {
	case !f.Pod.Gated:
		return wait(ReasonNotGated)
	case f.Rules.Removing:
		return step(RemoveGate, ReasonUninstalled)
	case f.Pod.Terminating, f.Pod.Final:
		return wait(ReasonPodEnded)
	case f.Mode == ModeUnknown, f.Mode == ModeOff && !f.ModeRead.Fresh(now):
		return step(ReadNamespace, ReasonNotAsked)
	case f.Mode == ModeOff:
		return step(RemoveGate, ReasonNotAsked)
	}
	if d := f.missing(); d.Reason != "" {
		return d
	}
	asked := f.asked()
	switch {
	case len(asked) == 0:
	case !f.Pod.Held:
		return wait(ReasonNotHeld)
	case len(f.Pod.OtherGates) > 0:
		return wait(ReasonOtherGates)
	}
	for _, next := range []func() Decision{
		func() Decision { return f.inUse(asked) },
		func() Decision { return f.unasked(now) },
		func() Decision { return f.locks(asked) },
		func() Decision { return f.users(asked, now) },
	} {
		if d := next(); d.Reason != "" {
			return d
		}
	}
	if len(asked) == 0 {
		return step(RemoveGate, ReasonNotAsked)
	}
	return step(RemoveGate, ReasonAcquired)
}

// missing returns the wait for a claim that cannot be used, no Reason for none.
func (f Facts) missing() Decision {
	for _, name := range f.Pod.Claims {
		i := slices.IndexFunc(f.Claims, func(c ClaimFacts) bool { return c.Claim.Name == name && c.Claim.UID != "" })
		switch {
		case i < 0:
			return Decision{Reason: ReasonClaimMissing, Claim: name}
		case f.Claims[i].Claim.Terminating:
			return Decision{Reason: ReasonClaimTerminating, Claim: name}
		case slices.Contains(f.Pod.Ephemeral, name) && f.Claims[i].Claim.Owner != f.Pod.UID:
			return Decision{Reason: ReasonClaimOfOther, Claim: name}
		}
	}
	return Decision{}
}

// asked returns the claims that need a lock, in the order of their names.
func (f Facts) asked() (asked []ClaimFacts) {
	for _, c := range f.Claims {
		if !c.Claim.Unasked {
			asked = append(asked, c)
		}
	}
	slices.SortFunc(asked, func(a, b ClaimFacts) int { return cmp.Compare(a.Claim.Name, b.Claim.Name) })
	return asked
}

// inUse returns the wait for a claim whose lock another pod has, no Reason for none.
func (f Facts) inUse(asked []ClaimFacts) Decision {
	for _, c := range asked {
		if c.Claim.Locked && !c.Claim.heldBy(f.Pod) {
			return Decision{Reason: ReasonClaimInUse, Claim: c.Claim.Name}
		}
	}
	return Decision{}
}

// unasked returns the next read to know that nothing asks for the locks of claims, no Reason where that is known. Of a
// watch that lags it is not: another pod may have the lock.
func (f Facts) unasked(now time.Time) Decision {
	for _, c := range f.Claims {
		switch {
		case !c.Claim.Unasked:
		case !f.ModeRead.Fresh(now):
			return step(ReadNamespace, ReasonNotAsked)
		case !c.Read.FreshAfter(f.ModeRead, now):
			return Decision{Action: ReadClaim, Reason: ReasonNotAsked, Claim: c.Claim.Name}
		}
	}
	return Decision{}
}

// locks returns the next step to the locks of the claims, no Reason if the pod has them all by live reads.
func (f Facts) locks(asked []ClaimFacts) Decision {
	for _, c := range asked {
		switch {
		case !c.Claim.Locked, !c.Claim.Kept:
			return Decision{Action: TakeLock, Reason: ReasonAcquired, Claim: c.Claim.Name}
		case c.Read.Order == 0:
			return Decision{Action: ReadClaim, Reason: ReasonAcquired, Claim: c.Claim.Name}
		}
	}
	return Decision{}
}

// users returns the wait for a pod that uses one of the claims without its lock, or the next read to find such pods, no
// Reason for none.
func (f Facts) users(asked []ClaimFacts, now time.Time) Decision {
	for _, c := range asked {
		if !f.UsersRead.FreshAfter(c.Read, now) {
			return step(ListPods, ReasonAcquired)
		}
	}
	for _, u := range f.Users {
		for _, c := range asked {
			if !u.blocks(f.Pod, c.Claim) {
				continue
			}
			d := u.evidence(c.Claim.Volume, f.Rules, f.UsersRead, now)
			d.Claim, d.User = c.Claim.Name, u.Pod.UID
			switch d.Action {
			case FreeLock: // it uses the claim no longer
			case Wait:
				d.Reason = ReasonUsedWithoutLock
				return d.again()
			default:
				return d
			}
		}
	}
	return Decision{}
}

// blocks reports whether a pod may use a claim of another without its lock.
func (u User) blocks(p Pod, c Claim) bool {
	return u.Pod.UID != p.UID && !u.Pod.Gated && slices.Contains(u.Pod.Claims, c.Name)
}
