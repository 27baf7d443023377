package singlenode

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Explanation describes the next step for a gated pod or for a lock, and its reason.
type Explanation struct {
	// Decision is the next wait, or the removal of the gate or lock.
	Decision Decision
	// Text is for people: the sentence of the reason, followed by details of this pod or lock.
	Text string
}

// Explain returns the outcome for a pod and its reason, with each fact treated as read just now, and each free lock as
// taken by the pod.
func Explain(f Facts, now time.Time) Explanation {
	f = f.asRead(now)
	d := Decide(f, now)
	for d.Action == TakeLock {
		i := slices.IndexFunc(f.Claims, func(c ClaimFacts) bool { return c.Claim.Name == d.Claim })
		c := &f.Claims[i].Claim
		c.Lock, c.Locked, c.Kept = Lock{UID: f.Pod.UID, Name: f.Pod.Name}, true, true
		d = Decide(f, now)
	}
	return Explanation{d, text(d, f.Detail(d), "Its scheduling gate is about to be removed.")}
}

// TakesLock reports whether a pod takes a lock next, if live reads confirm the facts.
func TakesLock(f Facts, now time.Time) bool { return Decide(f.asRead(now), now).Action == TakeLock }

// asRead marks every fact as read just now, in the order in which a session reads them.
func (f Facts) asRead(now time.Time) Facts {
	f.ModeRead, f.UsersRead = session.Read{Sent: now, Order: 1}, session.Read{Sent: now, Order: 3}
	f.Claims, f.Users = slices.Clone(f.Claims), slices.Clone(f.Users)
	for i := range f.Claims {
		f.Claims[i].Read = session.Read{Sent: now, Order: 2}
	}
	for i := range f.Users {
		f.Users[i].FenceRead, f.Users[i].NodeRead = session.Read{Sent: now, Order: 4}, session.Read{Sent: now, Order: 5}
	}
	return f
}

// ExplainLock returns the outcome for the lock of a claim and its reason, with each fact treated as read just now.
func ExplainLock(f LockFacts, now time.Time) Explanation {
	f.HolderRead = session.Read{Sent: now, Order: 1}
	f.Holder.FenceRead, f.Holder.NodeRead = session.Read{Sent: now, Order: 2}, session.Read{Sent: now, Order: 3}
	d := DecideLock(f, now)
	return Explanation{d, text(d, f.Detail(d), "The lock is about to be freed.")}
}

// text joins the sentence of a decision, the details of its object and, for a step that is not a wait, next.
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

// Detail returns details of this pod that the sentence of the reason lacks, empty for none: the claim, the pod that it
// waits for and its node, the missing evidence, and advice.
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

func (f Facts) named(claim string) (c ClaimFacts, found bool) {
	for _, c := range f.Claims {
		if c.Claim.Name == claim {
			return c, true
		}
	}
	return ClaimFacts{}, false
}

// Detail returns details of this lock that the sentence of the reason lacks, empty if no details apply.
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

// who returns the name of a pod and its node.
func (u User) who() string {
	if u.Pod.Node == "" {
		return "Pod " + u.Pod.Name + ", without a node"
	}
	return "Pod " + u.Pod.Name + ", on node " + u.Pod.Node
}

// describe names a pod and its node, and adds the missing evidence of its end, and advice. does says how the pod uses
// the claim.
func (u User) describe(does string) string {
	p := u.Pod
	object := p.Name + " -n " + p.Namespace
	explain := "kubectl reclaim explain pod/" + object
	text := u.who() + ", " + does + ". "
	switch how := u.uses(); {
	case how == ReasonHolderUnschedulable:
		return text + "It fits no node: " + explain + " shows why. Make room for it, or kubectl delete pod " + object + "."
	case how == ReasonHolderWaits:
		return text + "It waits to be scheduled: " + explain + " shows why."
	case how == ReasonWaitsForUnmount && u.Storage.Fenced:
		return text + "It has ended, and its volumes may still be mounted: a fence keeps its node from volumes, or may, " +
			"and the wait for the unmount begins when that has ended, or the node was rebooted since the proof."
	case how == ReasonWaitsForUnmount:
		return text + "It has ended, and its volumes may still be mounted: the wait for that is --unmount-grace."
	case how == ReasonHolderFailed:
		return text + "Its phase is final, but nothing shows that its processes have ended: kubectl delete pod " + object +
			". If it stays as EndNotReported, confirm its end: kubectl reclaim delete-pod --force."
	case how == ReasonHolderUnreachable && p.Terminating:
		return text + "It is terminating, and its node is not Ready: " + explain + " shows why it has not ended." +
			u.kept(" ")
	case how == ReasonHolderUnreachable:
		return text + "Its node is not Ready, and the pod may run there, or have its volumes mounted. It is not being " +
			"deleted: kubectl delete pod " + object + " begins to move the work."
	case how == ReasonHolderTerminating && u.kept("") != "":
		return text + u.kept("")
	case how == ReasonHolderTerminating:
		return text + "It is terminating: " + explain + " shows why it has not ended."
	}
	return text + "It has not ended, and is not being deleted."
}

// kept names the finalizers that keep the object of a terminating pod without the hold, after lead, or is empty.
func (u User) kept(lead string) string {
	if u.Pod.Held || len(u.Pod.Finalizers) == 0 {
		return ""
	}
	return lead + "It is terminating and not held, and its object stays until these finalizers are removed: " +
		strings.Join(u.Pod.Finalizers, ", ") + "."
}

// advice returns a hint for the owner of a pod that waits for a running pod, with a leading space, or an empty text.
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
	return " A second pod with the claim, such as a backup, waits until it ends."
}
