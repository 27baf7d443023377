package statefulset

import (
	"cmp"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// World names bounds: the objects, and how often each event may happen.
type World struct {
	search.Purpose
	// Ordinals is the number of ordinals of claims and pods, from 0. Start is the first ordinal of the set, Size its
	// initial number of replicas, and Again their number when it is created again.
	Ordinals           int
	Start, Size, Again uint8
	// Policy is the policy of the set, in the field or the annotation. Both adds the annotation with Delete to the field.
	Policy policy
	Both   bool
	// Gate means that API server and kube-controller-manager have the field, Skew that only kube-controller-manager has
	// it.
	Gate, Skew bool
	Parallel   bool
	// Collide adds a second set that gives its claims the same names.
	Collide bool
	// Settled means that the world begins with the first state at rest.
	Settled bool
	// Unused means that each ordinal has a claim at first, Unborn that no pod was created yet.
	Unused, Unborn bool
	// Foreign is another owner of the claims.
	Foreign  ref
	Replicas int
	// Lag means that the watches of volume-guard deliver a state at any later time, and not at once. ManagerLag means the
	// same for kube-controller-manager.
	Lag, ManagerLag bool
	// Counts means that the state includes the number of additions of an annotation or an owner to a claim.
	Counts bool
	// Turns are the policies that users choose, and Ways the ways in which they delete the set.
	Turns  []policy
	Ways   []cascade
	Budget Budget
}

// Budget bounds the number of each event in one history.
type Budget struct {
	// Scale changes the number of replicas, Start changes ordinals.start, and Turn the policy. Delete deletes the set, and
	// Recreate creates it again. Pod and Claim delete one by hand, and Restore applies a deleted claim again. Hold and
	// Unhold change the hold of a claim, and Strip removes a mark or owners. Gate switches the feature gate, Foreign
	// deletes the other owner, and Remove uninstalls volume-guard.
	Scale, Start, Turn, Delete, Recreate, Pod, Claim, Restore, Hold, Unhold, Strip, Gate, Foreign, Remove uint8
	// Crash ends a replica, API lets a call fail or loses its answer, and Late ends a replica whose call arrives later.
	// Manager restarts kube-controller-manager, Sync adds a sync of its controller without an event, and Stale lets the
	// scheduler bind a pod whose claim is terminating.
	Crash, API, Late, Manager, Sync, Stale uint8
}

// Worlds returns the explored worlds.
func Worlds() []World {
	worlds := slices.Clone(table)
	for i := range worlds {
		w := &worlds[i]
		w.Replicas, w.Ordinals = max(w.Replicas, 1), max(w.Ordinals, 1)
		w.Size, w.Again = cmp.Or(w.Size, uint8(w.Ordinals)), max(w.Again, 1)
	}
	return worlds
}

const (
	oneOrdinal = "one ordinal: what is decided of a claim depends on its own pod alone, and worlds of their own have two"
	upToDate   = "watches: what they show permits nothing, and the worlds in which they lag are about the same moves"
	oneLeader  = "one replica: a second does what one does after a crash, and two have a world of their own"
	ownersGone = "owners: a backup leaves them out, and a claim that is applied with them is Kubernetes' to collect"
	inOrder    = "OrderedReady: with one ordinal Parallel differs only in claims of pods that wait"
)

var (
	every = []policy{retain, whenScaled, whenDeleted, both}
	all   = []cascade{background, foreground, orphan}
)

// table has the explored worlds.
var table = []World{
	// Scaling.
	{Purpose: search.About("set, field", "a set is scaled down and up", oneOrdinal, inOrder),
		Gate: true, Policy: whenScaled, Lag: true, Budget: Budget{Scale: 2}},
	{Purpose: search.About("set, annotation", "the same where the API server drops the field", oneOrdinal, inOrder),
		Policy: both, Lag: true, Budget: Budget{Scale: 2}},
	{Purpose: search.About("set, field, parallel",
		"a set with Parallel is scaled down and up, and the caches of its controller lag", oneOrdinal, upToDate),
		Gate: true, Policy: both, Parallel: true, ManagerLag: true, Budget: Budget{Scale: 2, Stale: 1}},
	{Purpose: search.About("set, annotation, parallel", "the same by annotation", oneOrdinal, upToDate),
		Policy: whenScaled, Parallel: true, ManagerLag: true, Budget: Budget{Scale: 2, Stale: 1}},
	{Purpose: search.About("set, field, pod deleted", "a pod is deleted by hand, then its set is scaled down, and up",
		oneOrdinal, inOrder, upToDate), Gate: true, Policy: whenScaled, ManagerLag: true, Budget: Budget{Scale: 2, Pod: 1}},
	{Purpose: search.About("set, annotation, pod deleted", "the same by annotation", oneOrdinal, inOrder, upToDate),
		Policy: both, ManagerLag: true, Budget: Budget{Scale: 2, Pod: 1}},
	{Purpose: search.About("set, pod deleted, lag",
		"a pod is deleted by hand, then its set is scaled down, and watches lag", oneOrdinal, inOrder),
		Gate: true, Policy: whenScaled, Lag: true, Budget: Budget{Scale: 1, Pod: 1}},

	// More than one ordinal.
	{Purpose: search.About("set, two ordinals, field", "two replicas become one, none, and two again", upToDate),
		Settled: true, Ordinals: 2, Gate: true, Policy: whenScaled, Budget: Budget{Scale: 2}},
	{Purpose: search.About("set, two ordinals, annotation", "the same by annotation", upToDate),
		Settled: true, Ordinals: 2, Policy: both, Budget: Budget{Scale: 2}},
	{Purpose: search.About("set, two ordinals, parallel", "the same with Parallel", upToDate),
		Settled: true, Ordinals: 2, Parallel: true, Policy: both, Budget: Budget{Scale: 2}},
	{Purpose: search.About("set, start", "the first ordinal is moved, and the set scaled", upToDate),
		Ordinals: 2, Size: 1, Gate: true, Policy: whenScaled, Budget: Budget{Scale: 1, Start: 1}},
	{Purpose: search.About("set, start, annotation", "the same by annotation", upToDate),
		Settled: true, Ordinals: 2, Size: 1, Policy: both, Budget: Budget{Scale: 1, Start: 1}},
	{Purpose: search.About("set, never used", "a claim that a user has created for an ordinal that has never had a pod",
		upToDate), Settled: true, Unused: true, Ordinals: 2, Size: 1, Policy: both, Budget: Budget{Scale: 2}},

	// Policies that change.
	{Purpose: search.About("set, field turned", "the field is turned in all directions while the set is scaled",
		oneOrdinal, upToDate), Gate: true, Policy: retain, Turns: every, Budget: Budget{Scale: 2, Turn: 2}},
	{Purpose: search.About("set, annotation turned",
		"the annotation is turned in all directions, removed and made invalid", oneOrdinal, upToDate),
		Turns: append(every, none, invalid), Budget: Budget{Scale: 2, Turn: 2}},
	{Purpose: search.About("set, turned, lag", "the annotation is turned, and watches lag", oneOrdinal, oneLeader),
		Settled: true, Policy: both, Turns: []policy{retain, both}, Lag: true, Budget: Budget{Scale: 1, Turn: 2}},
	{Purpose: search.About("set, gate",
		"the feature gate is switched on, off and on again while the set is scaled and its policy turned", oneOrdinal,
		upToDate), Policy: both, Turns: []policy{none, both}, Both: true, Budget: Budget{Gate: 2, Scale: 2, Turn: 1}},
	{Purpose: search.About("set, hold", "the hold is added and removed, and the set deleted", oneOrdinal, upToDate),
		Policy: both, Ways: all, Budget: Budget{Scale: 2, Delete: 1, Hold: 1, Unhold: 1}},
	{Purpose: search.About("set, hold, field", "the hold is added and removed, and watches lag", oneOrdinal),
		Settled: true, Gate: true, Policy: whenScaled, Lag: true, Budget: Budget{Scale: 1, Pod: 1, Hold: 1, Unhold: 1}},
	{Purpose: search.About("set, stripped", "a user removes the mark or the owners that volume-guard has added",
		oneOrdinal, upToDate), Policy: both, Counts: true, Budget: Budget{Scale: 2, Strip: 2}},
	{Purpose: search.About("set, contested", "kube-controller-manager has the feature gate, and the API server does "+
		"not: it removes the owners that volume-guard adds", oneOrdinal, upToDate),
		Policy: both, Skew: true, Counts: true, Budget: Budget{Scale: 2, Pod: 1}},

	// Sets that are deleted.
	{Purpose: search.About("set, deleted", "a set is deleted in three ways, and created again with fewer replicas",
		oneOrdinal, upToDate),
		Settled: true, Policy: both, Ways: all, ManagerLag: true, Budget: Budget{Scale: 1, Delete: 1, Recreate: 1}},
	{Purpose: search.About("set, deleted, lag", "a set is deleted in three ways while owners are added, and watches lag",
		oneOrdinal, oneLeader), Policy: both, Ways: all, Lag: true, Budget: Budget{Delete: 1, Scale: 1}},
	{Purpose: search.About("set, deleted, field", "the same where Kubernetes has the policy", oneOrdinal, upToDate),
		Gate: true, Policy: both, Ways: all, Budget: Budget{Scale: 2, Delete: 1, Recreate: 1}},
	{Purpose: search.About("set, deleted, kept", "a set whose claims are kept when it is deleted, or not any more",
		oneOrdinal, upToDate),
		Policy: whenScaled, Ways: all, Turns: []policy{whenScaled, both}, Budget: Budget{Scale: 1, Turn: 2, Delete: 1}},

	// Claims that others have, too.
	{Purpose: search.About("set, other owner", "claims have another owner, which is deleted", oneOrdinal, upToDate),
		Foreign: plain, Policy: both, Ways: []cascade{background}, Budget: Budget{Scale: 2, Delete: 1, Foreign: 1}},
	{Purpose: search.About("set, other controller", "claims have another controller, which is deleted", oneOrdinal,
		upToDate), Foreign: controller, Gate: true, Policy: both, Ways: []cascade{background},
		Budget: Budget{Scale: 2, Delete: 1, Foreign: 1}},
	{Purpose: search.About("set, other owner, field", "the same with an owner that is no controller, in the field",
		oneOrdinal, upToDate), Foreign: plain, Gate: true, Policy: whenScaled, Budget: Budget{Scale: 2, Pod: 1, Foreign: 1}},
	{Purpose: search.About("set, deleted, turned", "a policy is turned just before its set is deleted, or scaled",
		oneOrdinal, upToDate),
		Policy: both, Ways: all, Turns: []policy{retain, whenDeleted, both}, Budget: Budget{Scale: 1, Turn: 2, Delete: 1}},
	{Purpose: search.About("set, claim deleted", "a user deletes the claim of a pod, which runs, and scales the set",
		oneOrdinal, upToDate), Policy: both, Ways: all, Budget: Budget{Scale: 2, Pod: 1, Claim: 1, Stale: 1}},
	{Purpose: search.About("set, names collide", "two sets give their claims the same names, until one is deleted",
		oneOrdinal, "that the second set is there from the start: there is no precondition across objects"),
		Collide: true, Policy: both, Ways: all, Budget: Budget{Scale: 2, Delete: 1}},
	{Purpose: search.About("set, uninstalled", "volume-guard is uninstalled at any moment", oneOrdinal, oneLeader),
		Policy: both, Lag: true, Budget: Budget{Scale: 2, Remove: 1}},

	// Claims that come back with the annotations of deleted claims.
	{Purpose: search.About("set, restored",
		"a claim that was scaled away is restored from a backup, and the set scaled again", oneOrdinal, ownersGone),
		Gate: true, Policy: whenScaled, Lag: true, Budget: Budget{Scale: 2, Restore: 1}},
	{Purpose: search.About("set, restored, annotation", "the same by annotation, and the set is deleted", oneOrdinal,
		upToDate, ownersGone), Policy: both, Ways: all, Budget: Budget{Scale: 2, Delete: 1, Recreate: 1, Restore: 2}},
	{Purpose: search.About("set, restored, deleted by hand",
		"pods and claims are deleted by hand, claims restored, and the annotation turned", oneOrdinal, upToDate, ownersGone),
		Policy: both, Turns: []policy{retain, both},
		Budget: Budget{Scale: 1, Turn: 1, Pod: 1, Claim: 1, Hold: 1, Unhold: 1, Restore: 2}},

	// Faults.
	{Purpose: search.About("set, calls fail", "calls fail or lose their answer", oneOrdinal, upToDate),
		Policy: both, Budget: Budget{Scale: 2, API: 2}},
	{Purpose: search.About("set, calls fail, field", "the same where Kubernetes has the policy", oneOrdinal, upToDate),
		Gate: true, Policy: whenScaled, Budget: Budget{Scale: 2, Pod: 1, API: 2}},
	{Purpose: search.About("set, late calls", "a replica ends with a write under way, which arrives later or not",
		oneOrdinal, upToDate), Policy: both, Budget: Budget{Scale: 2, Pod: 1, Late: 1}},
	{Purpose: search.About("set, late calls, field", "the same where Kubernetes has the policy", oneOrdinal, upToDate),
		Gate: true, Policy: whenScaled, Budget: Budget{Scale: 2, Pod: 1, Late: 1}},
	{Purpose: search.About("set, crash", "a replica ends between its steps, and watches lag", oneOrdinal, inOrder),
		Gate: true, Policy: whenScaled, Lag: true, Budget: Budget{Scale: 1, Pod: 1, Crash: 1}},
	{Purpose: search.About("set, two leaders", "two replicas act at the same time", oneOrdinal, upToDate),
		Replicas: 2, Policy: both, Budget: Budget{Scale: 2}},
	{Purpose: search.About("set, two leaders, field", "the same where Kubernetes has the policy", oneOrdinal, upToDate),
		Replicas: 2, Gate: true, Policy: whenScaled, Budget: Budget{Scale: 1, Pod: 1, Crash: 1}},
	{Purpose: search.About("set, manager restarts",
		"kube-controller-manager starts again, or syncs for no reason, and its caches lag", oneOrdinal, upToDate),
		Gate: true, Policy: both, ManagerLag: true, Budget: Budget{Scale: 2, Manager: 1, Sync: 1, Stale: 1}},

	// The larger worlds.
	{Purpose: search.Deep("set, field, deep", "scaled and deleted by hand, and all watches lag", oneOrdinal),
		Gate: true, Policy: whenScaled, Lag: true, ManagerLag: true, Budget: Budget{Scale: 2, Pod: 1}},
	{Purpose: search.Deep("set, annotation, deep", "the same by annotation", oneOrdinal),
		Policy: both, Lag: true, ManagerLag: true, Budget: Budget{Scale: 2, Pod: 1}},
	{Purpose: search.Deep("set, two leaders, deep", "two replicas whose watches lag", oneOrdinal),
		Replicas: 2, Policy: both, Lag: true, Budget: Budget{Scale: 2}},
	{Purpose: search.Deep("set, deleted, deep", "a set is deleted and created again, and all watches lag", oneOrdinal),
		Policy: both, Ways: all, Lag: true, ManagerLag: true, Budget: Budget{Scale: 1, Delete: 1, Recreate: 1}},
	{Purpose: search.Deep("set, two ordinals, deep", "two replicas are scaled and deleted by hand, and watches lag",
		oneLeader), Ordinals: 2, Policy: both, Lag: true, Budget: Budget{Scale: 2, Pod: 1}},
}
