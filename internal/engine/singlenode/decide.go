package singlenode

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Facts are the inputs of Decide for one gated pod. The zero value of every field means unknown, or favors keeping the
// gate.
type Facts struct {
	Rules Rules
	// Mode is the mode of the pod's namespace, from the watch cache or, if ModeRead is set, from a live read.
	Mode     Mode
	ModeRead session.Read
	Pod      Pod
	// Claims has one entry for each claim of the pod.
	Claims []ClaimFacts
	// Users are the other pods that name one of the claims and have no gate, according to the live list UsersRead.
	Users     []User
	UsersRead session.Read
}

// ClaimFacts are the facts about one claim of a gated pod.
type ClaimFacts struct {
	// Claim comes from the watch cache or, if Read is set, from a live read or the reply to a write. Unasked counts only
	// after a live read that was sent after the read of the namespace.
	Claim Claim
	Read  session.Read
	// Holder is the pod named in the lock, from the watch cache, and serves explanations instead of decisions.
	Holder User
}

// Decision is the next step and its reason.
type Decision struct {
	Action Action
	Reason Reason
	// After bounds the duration of a wait, and is zero for a wait that only an event ends.
	After time.Duration
	// Claim is the name of the claim that the step concerns or waits for, empty for the pod as a whole.
	Claim string
	// User is the UID of a pod that uses the claim without a lock, of the pod whose node or fence is read, or of the
	// lock's holder.
	User types.UID
}

// Step implements session.State.
func (d Decision) Step() session.Step[Reason] {
	return session.Step[Reason]{Action: d.Action, Reason: d.Reason, After: d.After}
}

// recheckAfter bounds waits that rest on a live read alone. A watch can skip a pod that was created and removed between
// two of its LISTs, so no event would end such a wait.
const recheckAfter = time.Minute

// again limits the wait to recheckAfter.
func (d Decision) again() Decision {
	if d.After == 0 || d.After > recheckAfter {
		d.After = recheckAfter
	}
	return d
}

func wait(why Reason) Decision           { return Decision{Action: Wait, Reason: why} }
func step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }

// Decide returns the next step for one gated pod. The caller carries it out, adds the result to the facts, and calls
// Decide again, which keeps the gate as long as any fact is unknown.
//
// Safety depends on the order. The locks come first, by compare-and-swap. The list of the pods follows, and shows every
// pod that uses a claim without its lock, such as one that was created before the namespace asked. The gate goes last.
//
// A pod takes no lock while it has other gates, because a queue may admit another pod that needs the claim, and never
// this one. It also takes none while it sees another pod's lock on a claim that it needs. Pods take their locks in the
// order of claim names and therefore never wait for each other in a circle. The order is not by UID, because a claim
// that is deleted and created again has another UID.
//
// now decides whether reads are too old and waits are over.
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

// missing returns the wait for an unusable claim, without a Reason if all claims can be used.
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

// asked returns the claims that need a lock, sorted by name.
func (f Facts) asked() (asked []ClaimFacts) {
	for _, c := range f.Claims {
		if !c.Claim.Unasked {
			asked = append(asked, c)
		}
	}
	slices.SortFunc(asked, func(a, b ClaimFacts) int { return cmp.Compare(a.Claim.Name, b.Claim.Name) })
	return asked
}

// inUse returns the wait for a claim locked by another pod, without a Reason if no claim is.
func (f Facts) inUse(asked []ClaimFacts) Decision {
	for _, c := range asked {
		if c.Claim.Locked && !c.Claim.heldBy(f.Pod) {
			return Decision{Reason: ReasonClaimInUse, Claim: c.Claim.Name}
		}
	}
	return Decision{}
}

// unasked returns the next read that is needed to confirm that claims need no lock, without a Reason once that is
// confirmed. A lagging watch does not confirm it, as another pod may have the lock.
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

// locks returns the next step towards the locks of the claims, without a Reason if live reads show that the pod has all
// of them.
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

// users returns the wait for a pod that uses one of the claims without its lock, or the next read to find such pods.
// Without such a pod, it has no Reason.
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
			case FreeLock: // the pod no longer uses the claim
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

// blocks reports whether u is another, ungated pod with the claim, and may use it without its lock.
func (u User) blocks(p Pod, c Claim) bool {
	return u.Pod.UID != p.UID && !u.Pod.Gated && slices.Contains(u.Pod.Claims, c.Name)
}
