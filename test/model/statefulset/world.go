package statefulset

import (
	"math/bits"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

const (
	maxSets     = 2
	maxOrdinals = 2
	maxReplicas = memory.Replicas
)

// policy is a retention policy as a user writes it. The zero value: none.
type policy uint8

const (
	none policy = iota
	retain
	whenScaled
	whenDeleted
	both
	// invalid is an annotation that cannot be read.
	invalid
)

func (p policy) scaled() bool  { return p == whenScaled || p == both }
func (p policy) deleted() bool { return p == whenDeleted || p == both }
func (p policy) keeps() bool   { return !p.scaled() && !p.deleted() }

// cascade is a way to delete a set. The zero value: it was not deleted.
type cascade uint8

const (
	notDeleted cascade = iota
	background
	foreground
	orphan
)

// set is a StatefulSet as the API server holds it. Its UID is its number.
type set struct {
	exists, terminating bool
	// how is what its finalizer says, if it is terminating.
	how             cascade
	start, replicas uint8
	// field is spec.persistentVolumeClaimRetentionPolicy, as it is read.
	field, annotation policy
	// woken: it has WokenAnnotation.
	woken bool
}

func (s set) inRange(ordinal int) bool {
	return ordinal >= int(s.start) && ordinal < int(s.start)+int(s.replicas)
}

// says returns what the set says of its claims: written apart from the code that decides.
func (s set) says() policy {
	if s.field != none {
		return s.field
	}
	return s.annotation
}

// pod is a pod as the API server holds it. Its UID counts the pods of its name from 1.
type pod struct {
	uid uint8
	// owner is the number of the set that controls it, from 1; 0 for none.
	owner uint8
	// ready: its containers run.
	terminating, bound, ready bool
}

// ref is an owner reference of a claim. The zero value: there is none.
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

// mark is the annotation of a claim. The zero value: there is none.
type mark struct {
	// set is the number of the set from 1.
	set     uint8
	deletes bool
	// of is the UID of the claim that had the pod.
	of uint8
}

// claim is a claim as the API server holds it. Its UID counts the claims of its name from 1.
type claim struct {
	uid               uint8
	terminating, hold bool
	mark              mark
	sets              [maxSets]ref
	pods              [2]podRef
	foreign           ref
}

// objects are what the API server holds, or what a watch shows. Pods are by the number of their set's name, and their
// ordinal.
type objects struct {
	sets   [maxSets]set
	pods   [maxSets][maxOrdinals]pod
	claims [maxOrdinals]claim
}

// history is what has been with a claim, for the judge.
type history struct {
	// had: it had a pod of the set.
	had [maxSets]bool
	// scaled: while it had a pod of the set, that said that it is deleted when it is scaled away. deleted: and when the
	// set is deleted.
	scaled, deleted [maxSets]bool
	// mustScale and mustDelete: so it was when all was at rest, and the set says so since.
	mustScale, mustDelete [maxSets]bool
	// grace: a grace period has passed while it was condemned and had no pod.
	grace bool
	// held: somebody held it when all was at rest.
	held bool
	// late: an owner reference was added to what had gone since it was read.
	late bool
	// byPolicy: it was deleted because it was scaled away.
	byPolicy bool
}

// backup is what a backup has of a claim beside its name.
type backup struct {
	there, hold bool
	mark        mark
}

// end is how a set was deleted.
type end struct {
	how    cascade
	says   policy
	atRest bool
}

// manager is kube-controller-manager's StatefulSet controller.
type manager struct {
	seen objects
	// woken and retries: the set of a name is in its queue, by an event, or because of an error.
	woken, retries [maxSets]bool
}

// age is how long something has been so.
type age uint8

const (
	never age = iota
	young
	old
)

// sight is what one replica has seen of a claim.
type sight struct {
	condemned age
	// added is a hash of Sight.Added.
	added     [4]uint8
	additions uint8
}

// work is the state of the work of a replica on a claim, as far as it is not in what the replica has seen.
type work struct {
	on     bool
	shared bool
	// name is the number of the set's name; set is the number of the set from 1, 0 if there is none.
	name, set        uint8
	setSeen, podSeen statefulset.Seen
	claim            claim
	as               set
	pod              pod
	otherPod         bool
	// The orders of the live reads, 0 for those not made, and how many there were.
	claimRead, podRead, setRead, reads uint8
	sight                              sight
	// For the judge: what the live reads found permits the deletion.
	claimPermits, podPermits, setPermits bool
}

// line is one replica of volume-guard.
type line struct {
	up       bool
	seen     objects
	sights   [maxOrdinals]sight
	sessions [maxOrdinals]work
	// woken: the claim is in the queue, timed: it comes back by the clock.
	woken, timed [maxOrdinals]bool
	// The same of sets, by the numbers of their names. quiet is for how long nothing has happened to the set.
	quiet              [maxSets]age
	setWoken, setTimed [maxSets]bool
}

// late is a write that may still arrive, of a process that has ended.
type late struct {
	on      uint8
	session work
}

// state is everything. All of it is plain, so that it can be compared and copied.
type state struct {
	objects
	podUIDs   [maxSets][maxOrdinals]uint8
	claimUIDs [maxOrdinals]uint8
	history   [maxOrdinals]history
	// backups have the claims that were there last, where users restore them.
	backups [maxOrdinals]backup
	ends    [maxSets]end
	// gate and managerGate: the API server and kube-controller-manager have StatefulSetAutoDeletePVC.
	gate, managerGate bool
	// foreignGone: the foreign owner is deleted. removing: volume-guard is being uninstalled.
	foreignGone, removing bool
	manager               manager
	lines                 [maxReplicas]line
	late                  late
	left                  Budget
}

func (s *state) encode(b []byte) []byte {
	var none memory.Knows
	return memory.Encode(b, s, &none)
}

func decode(b []byte) (s state) {
	memory.Decode(b, &s)
	return s
}

// name is the number of the name of a set: both have one, or each its own.
func (w *World) name(slot int) int {
	if w.Collide {
		return slot
	}
	return 0
}

// names is how many names there are.
func (w *World) names() int {
	if w.Collide {
		return maxSets
	}
	return 1
}

// named returns the number of the set that has a name, -1 for none.
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

// stalePod reports whether a pod that is gone owns a claim.
func (o *objects) stalePod(n int) bool {
	return slices.ContainsFunc(o.claims[n].pods[:], func(r podRef) bool {
		return r.kind != noRef && o.pods[r.name][n].uid != r.uid
	})
}

// number numbers pods and claims anew, in their order: how many there have been does not matter, only which are the
// same. So a history that comes back to where it was is one state with it.
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

// eachUID visits each place where the UID of a pod or a claim is kept.
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
