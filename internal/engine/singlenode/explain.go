package singlenode

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Explanation is what happens to a gated pod next, and why.
type Explanation struct {
	// Decision is the wait that comes next, or the removal of the gate.
	Decision Decision
	// Text is for people: the reason's sentence and what is known of this pod.
	Text string
	// Gated: the pod has the gate. Waits: it keeps it until something else happens.
	Gated, Waits bool
	// Claims are the pod's claims.
	Claims []ClaimExplanation
}

// ClaimExplanation is what a gated pod needs of one of its claims.
type ClaimExplanation struct {
	Name string
	// Asked: the pod needs its lock.
	Asked bool
	// Lock is who has the lock, the zero value for nobody, and Own whether it is the pod.
	Lock Lock
	Own  bool
}

// Explain returns what becomes of a pod, and why. It is a pure function: each fact counts as read just now, and a lock
// that is free counts as given to the pod.
func Explain(f Facts, now time.Time) Explanation {
	e := Explanation{Gated: f.Pod.Gated}
	for _, c := range f.Claims {
		e.Claims = append(e.Claims, ClaimExplanation{Name: c.Claim.Name, Asked: !c.Claim.Unasked, Lock: c.Claim.Lock,
			Own: c.Claim.heldBy(f.Pod)})
	}
	f = f.asRead(now)
	e.Decision = Decide(f, now)
	for e.Decision.Action == TakeLock {
		i := slices.IndexFunc(f.Claims, func(c ClaimFacts) bool { return c.Claim.Name == e.Decision.Claim })
		c := &f.Claims[i].Claim
		c.Lock, c.Locked, c.Kept = Lock{UID: f.Pod.UID, Name: f.Pod.Name}, true, true
		e.Decision = Decide(f, now)
	}
	e.Waits = f.Pod.Gated && e.Decision.Action == Wait
	e.Text = text(e.Decision, f.Detail(e.Decision), "Its scheduling gate is about to be removed.")
	return e
}

// asRead returns the facts as if each was read just now, in the order in which a session reads them.
func (f Facts) asRead(now time.Time) Facts {
	f.ModeRead, f.UsersRead = session.Read{Sent: now, Order: 1}, session.Read{Sent: now, Order: 3}
	f.Claims, f.Users = slices.Clone(f.Claims), slices.Clone(f.Users)
	for i := range f.Claims {
		f.Claims[i].Read = session.Read{Sent: now, Order: 2}
	}
	for i := range f.Users {
		f.Users[i].Fence.Read, f.Users[i].Node.Read = session.Read{Sent: now, Order: 4}, session.Read{Sent: now, Order: 5}
	}
	return f
}

// LockExplanation is what happens to the lock of a claim next, and why.
type LockExplanation struct {
	// Decision is the wait that comes next, or the end of the lock.
	Decision Decision
	// Text is for people: the reason's sentence and what is known of this lock.
	Text string
	// Locked: the claim has a lock. Lock is who has it.
	Locked bool
	Lock   Lock
	// Node is that of the pod that has the lock, empty for none.
	Node string
}

// ExplainLock returns what becomes of the lock of a claim, and why. It is a pure function: each fact counts as read
// just now.
func ExplainLock(f LockFacts, now time.Time) LockExplanation {
	f.HolderRead = session.Read{Sent: now, Order: 1}
	f.Holder.Fence.Read, f.Holder.Node.Read = session.Read{Sent: now, Order: 2}, session.Read{Sent: now, Order: 3}
	e := LockExplanation{Decision: DecideLock(f, now), Locked: f.Claim.Locked, Lock: f.Claim.Lock}
	if f.holds() {
		e.Node = f.Holder.Pod.Node
	}
	e.Text = text(e.Decision, f.Detail(e.Decision), "The lock is about to be freed.")
	return e
}

// text returns the sentence of a decision and what is known of its object. next says what comes without a wait.
func text(d Decision, detail, next string) string {
	s := d.Reason.Sentence()
	if detail != "" {
		s += " " + detail
	}
	if d.Action != Wait {
		s += " " + next + " If that does not happen, volume-guard does not run, or without the controller single-node."
	}
	return s
}

// Detail returns what is known of this pod beyond the reason's sentence: which claim and which pod it waits for, where
// that is, what its end lacks, and what to do. Empty for nothing.
func (f Facts) Detail(d Decision) string {
	claim := "Claim " + d.Claim + "."
	switch d.Reason {
	case ReasonClaimMissing, ReasonClaimOfOther:
		return claim
	case ReasonOtherGates:
		return strings.Join(f.Pod.OtherGates, ", ") + "."
	case ReasonClaimTerminating:
		c, _ := f.named(d.Claim)
		switch {
		case c.Claim.heldBy(f.Pod):
			return fmt.Sprintf("%s It is kept for this pod, which has its lock: kubectl delete pod %s -n %s lets it be deleted.",
				claim, f.Pod.Name, f.Pod.Namespace)
		case c.Claim.Lock.Name != "":
			return fmt.Sprintf("%s Pod %s has its lock.", claim, c.Claim.Lock.Name)
		}
		return claim
	case ReasonClaimInUse:
		c, found := f.named(d.Claim)
		switch {
		case !found:
			return ""
		case c.Claim.Lock.Name == "" || c.Holder.Pod.UID != c.Claim.Lock.UID:
			return claim + " The pod of the lock does not exist: the lock is about to be freed."
		}
		return claim + " " + c.Holder.describe("has the lock") + c.Holder.advice(f.Pod)
	case ReasonUsedWithoutLock:
		i := slices.IndexFunc(f.Users, func(u User) bool { return u.Pod.UID == d.User })
		if i < 0 {
			return ""
		}
		return claim + " " + f.Users[i].describe("uses it") + f.Users[i].advice(f.Pod)
	default:
		return ""
	}
}

// named returns what is known of a claim of the pod.
func (f Facts) named(claim string) (c ClaimFacts, found bool) {
	for _, c := range f.Claims {
		if c.Claim.Name == claim {
			return c, true
		}
	}
	return ClaimFacts{}, false
}

// Detail returns what is known of this lock beyond the reason's sentence, empty for nothing.
func (f LockFacts) Detail(d Decision) string {
	switch {
	case f.Claim.Lock.Name == "":
		return ""
	case f.Holder.Pod.UID != f.Claim.Lock.UID:
		return "Pod " + f.Claim.Lock.Name + "."
	case d.Action == FreeLock:
		return f.Holder.who() + "."
	}
	return f.Holder.describe("has the lock")
}

// who returns the name of a pod, and where it is.
func (u User) who() string {
	if u.Pod.Node == "" {
		return "Pod " + u.Pod.Name + ", without a node"
	}
	return "Pod " + u.Pod.Name + ", on node " + u.Pod.Node
}

// describe returns who a pod is, where it is, what its end lacks, and what to do.
func (u User) describe(does string) string {
	p := u.Pod
	object := p.Name + " -n " + p.Namespace
	explain := "kubectl reclaim explain pod/" + object
	text := u.who() + ", " + does + ". "
	switch how := u.uses(); {
	case how == ReasonHolderUnschedulable:
		return text + "It fits no node: " + explain + " shows why. Make room for it, or kubectl delete pod " + object + "."
	case how == ReasonHolderWaits:
		return text + "It waits to be scheduled: " + explain + " shows for what."
	case how == ReasonWaitsForUnmount && u.Storage.Fenced:
		return text + "It has ended, and its volumes may still be mounted: a fence keeps its node from volumes, or may, " +
			"and the wait for the unmount begins when that has ended."
	case how == ReasonWaitsForUnmount:
		return text + "It has ended, and its volumes may still be mounted: the wait for that is --unmount-grace."
	case how == ReasonHolderFailed:
		return text + "It has ended by its phase, and nothing shows that its processes have: kubectl delete pod " + object +
			" has its node report that."
	case how == ReasonHolderUnreachable && p.Terminating:
		return text + "It is terminating, and its node is not Ready: " + explain + " shows what its end lacks."
	case how == ReasonHolderUnreachable:
		return text + "Its node is not Ready, and the pod may run there. Nobody has deleted it: kubectl delete pod " +
			object + " begins to move the work."
	case how == ReasonHolderTerminating:
		return text + "It is terminating: " + explain + " shows what its end lacks."
	}
	return text + "It has not ended, and nobody has deleted it."
}

// advice returns what to do about a pod that waits for one that runs, with a space before it, empty for nothing.
func (u User) advice(waits Pod) string {
	switch {
	case u.uses() != ReasonHolderRuns:
		return ""
	case waits.OwnerKind == "ReplicaSet":
		return " A Deployment needs the strategy Recreate, or maxSurge: 0: otherwise it waits for the new pod before it " +
			"deletes the old one."
	case waits.OwnerKind == objects.StatefulSet:
		return ""
	}
	return " A pod that is to use the claim beside it, such as that of a backup, waits until it ends."
}
