package statefulset

import (
	"math/bits"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

const (
	maxSets     = 2
	maxOrdinals = 2
	maxReplicas = memory.Replicas
)

// policy is a retention policy in the words of a user, none in its zero value.
type policy uint8

const (
	none policy = iota
	retain
	whenScaled
	whenDeleted
	both
	// invalid is an annotation that cannot be parsed.
	invalid
)

func (p policy) scaled() bool  { return p == whenScaled || p == both }
func (p policy) deleted() bool { return p == whenDeleted || p == both }
func (p policy) keeps() bool   { return !p.scaled() && !p.deleted() }

// cascade is a way to delete a set. The zero value means that it was not deleted.
type cascade uint8

const (
	notDeleted cascade = iota
	background
	foreground
	orphan
)

// set is a StatefulSet in the API server. Its UID is its number.
type set struct {
	exists, terminating bool
	// how is the cascade in its finalizer, if it is terminating.
	how             cascade
	start, replicas uint8
	// field is spec.persistentVolumeClaimRetentionPolicy, as a read returns it.
	field, annotation policy
	// woken means that it has WokenAnnotation.
	woken bool
}

func (s set) inRange(ordinal int) bool {
	return ordinal >= int(s.start) && ordinal < int(s.start)+int(s.replicas)
}

// says returns the policy of the set, independently of the code that decides.
func (s set) says() policy {
	if s.field != none {
		return s.field
	}
	return s.annotation
}

// pod is a pod in the API server. Its UID counts the pods of its name from 1.
type pod struct {
	uid uint8
	// owner is the number of the set that controls it, from 1; 0 for none.
	owner uint8
	// ready means that its containers run.
	terminating, bound, ready bool
}

// ref is an owner reference of a claim. The zero value does not exist.
type ref uint8

const (
	noRef ref = iota
	plain
	controller
)

// podRef is an owner reference of a claim to a pod of a name and a UID.
type podRef struct {
	kind      ref
	name, uid uint8
}

// mark is the annotation of a claim. The zero value does not exist.
type mark struct {
	// set is the number of the set from 1.
	set     uint8
	deletes bool
	// of is the UID of the claim that had the pod.
	of uint8
}

// claim is a claim in the API server. Its UID counts the claims of its name from 1.
type claim struct {
	uid               uint8
	terminating, hold bool
	mark              mark
	sets              [maxSets]ref
	pods              [2]podRef
	foreign           ref
}

// objects are the contents of the API server, or of the watch caches. Pods have the number of their set's name and
// their ordinal as indices.
type objects struct {
	sets   [maxSets]set
	pods   [maxSets][maxOrdinals]pod
	claims [maxOrdinals]claim
}

// history is the past of a claim, for the invariants.
type history struct {
	// had means that it had a pod of the set.
	had [maxSets]bool
	// scaled means that the set said Delete for a scale-down while the claim had a pod of the set, deleted that it said
	// Delete for its own deletion.
	scaled, deleted [maxSets]bool
	// mustScale and mustDelete mean that this was so at rest, and that the set has said so since.
	mustScale, mustDelete [maxSets]bool
	// grace means that a grace period has passed while the claim was condemned and had no pod.
	grace bool
	// held means that it was held at rest.
	held bool
	// late means that an owner reference was added to an object that had gone since it was read.
	late bool
	// byPolicy means that it was deleted because it was scaled away.
	byPolicy bool
}

// backup is the part of a claim in a backup, except for its name.
type backup struct {
	there, hold bool
	mark        mark
}

// end describes how a set was deleted.
type end struct {
	how    cascade
	says   policy
	atRest bool
}

// manager is kube-controller-manager's StatefulSet controller.
type manager struct {
	seen objects
	// woken and retries mean that the set of a name is in its queue, by an event, or because of an error.
	woken, retries [maxSets]bool
}

// age is the time since an event, which has not happened in its zero value.
type age = clock.Age

const never, young, old = clock.Never, clock.Young, clock.Old

// sight is the record of one replica about a claim.
type sight struct {
	condemned age
	// added is a hash of Sight.Added.
	added     [4]uint8
	additions uint8
}

// work is the state of the work of a replica on a claim, beyond the watch caches of the replica.
type work struct {
	on     bool
	shared bool
	// name is the number of the set's name, and set the number of the set from 1, 0 if it does not exist.
	name, set        uint8
	setSeen, podSeen statefulset.Seen
	claim            claim
	as               set
	pod              pod
	otherPod         bool
	// The orders of the live reads, 0 for missing reads, and their number.
	claimRead, podRead, setRead, reads uint8
	sight                              sight
	// For the invariants: the results of the live reads permit the deletion.
	claimPermits, podPermits, setPermits bool
}

// line is one replica of volume-guard.
type line struct {
	up       bool
	seen     objects
	sights   [maxOrdinals]sight
	sessions [maxOrdinals]work
	// woken means that the claim is in the queue, timed that it comes back by the clock.
	woken, timed [maxOrdinals]bool
	// The same for sets, by the numbers of their names. quiet is the time without a change of the set.
	quiet              [maxSets]age
	setWoken, setTimed [maxSets]bool
}

// late is a write of an ended process that may still arrive.
type late struct {
	on      uint8
	session work
}

// state is the whole state, as plain data that can be compared and copied.
type state struct {
	objects
	podUIDs   [maxSets][maxOrdinals]uint8
	claimUIDs [maxOrdinals]uint8
	history   [maxOrdinals]history
	// backups have the last claims that existed, if users restore them.
	backups [maxOrdinals]backup
	ends    [maxSets]end
	// gate and managerGate mean that the API server and kube-controller-manager have StatefulSetAutoDeletePVC.
	gate, managerGate bool
	// foreignGone means that the foreign owner is deleted, removing that volume-guard is being uninstalled.
	foreignGone, removing bool
	manager               manager
	lines                 [maxReplicas]line
	late                  late
	left                  Budget
}

// name returns the number of a set's name. Both sets share one name, unless they collide.
func (w *World) name(slot int) int {
	if w.Collide {
		return slot
	}
	return 0
}

// names returns the number of names.
func (w *World) names() int {
	if w.Collide {
		return maxSets
	}
	return 1
}

// named returns the number of the set with a name, -1 for none.
func (w *World) named(o *objects, name int) int {
	for slot, s := range o.sets {
		if s.exists && w.name(slot) == name {
			return slot
		}
	}
	return -1
}

// shared reports whether two sets give the claims their names.
func (w *World) shared(o *objects) bool { return w.Collide && o.sets[0].exists && o.sets[1].exists }

// stalePod reports whether a missing pod owns a claim.
func (o *objects) stalePod(n int) bool {
	return slices.ContainsFunc(o.claims[n].pods[:], func(r podRef) bool {
		return r.kind != noRef && o.pods[r.name][n].uid != r.uid
	})
}

// number renumbers pods and claims in their order, because only their identity matters and not how many have existed. A
// history that returns to an earlier situation thus returns to the same state.
func (s *state) number() {
	var pods [maxSets][maxOrdinals]uint64
	var claims [maxOrdinals]uint64
	see := func(name, n int, uid *uint8) { pods[name][n] |= 1 << *uid }
	s.eachUID(see, func(n int, uid *uint8) { claims[n] |= 1 << *uid })
	place := func(used uint64, uid *uint8) {
		if *uid > 0 {
			*uid = uint8(bits.OnesCount64(used &^ 1 & (1<<*uid - 1)))
			*uid++
		}
	}
	s.eachUID(func(name, n int, uid *uint8) { place(pods[name][n], uid) },
		func(n int, uid *uint8) { place(claims[n], uid) })
	for n := range claims {
		s.claimUIDs[n] = uint8(bits.OnesCount64(claims[n] &^ 1))
		for name := range pods {
			s.podUIDs[name][n] = uint8(bits.OnesCount64(pods[name][n] &^ 1))
		}
	}
}

// eachUID visits each place with the UID of a pod or a claim.
func (s *state) eachUID(pod func(name, n int, uid *uint8), claimOf func(n int, uid *uint8)) {
	inClaim := func(n int, c *claim) {
		claimOf(n, &c.uid)
		claimOf(n, &c.mark.of)
		for i := range c.pods {
			if r := &c.pods[i]; r.kind != noRef {
				pod(int(r.name), n, &r.uid)
			}
		}
	}
	inSession := func(n int, at *work) {
		inClaim(n, &at.claim)
		pod(int(at.name), n, &at.pod.uid)
	}
	for _, o := range []*objects{&s.objects, &s.manager.seen, &s.lines[0].seen, &s.lines[1].seen} {
		for n := range o.claims {
			inClaim(n, &o.claims[n])
			for name := range o.pods {
				pod(name, n, &o.pods[name][n].uid)
			}
		}
	}
	for n := range s.backups {
		claimOf(n, &s.backups[n].mark.of)
	}
	inSession(int(s.late.on), &s.late.session)
	for i := range s.lines {
		for n := range s.lines[i].sessions {
			inSession(n, &s.lines[i].sessions[n])
		}
	}
}
