package statefulset

import (
	"cmp"
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// World names bounds: the objects, and how often each event may happen.
type World struct {
	// Name is the name in tables and on the command line.
	Name string
	// About is the purpose of the world, in a sentence.
	About string
	// Constant names constants that matter for the purpose, and the reason why they hide no error.
	Constant string
	// Deep worlds take long.
	Deep bool
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
	var worlds []World
	for _, some := range [][]World{scaled(), wide(), turned(), ended(), shared(), restored(), broken(), deep()} {
		worlds = append(worlds, some...)
	}
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

func all() []cascade { return []cascade{background, foreground, orphan} }

// scaled returns worlds about scaling.
func scaled() []World {
	return []World{
		{
			Name: "set, field", About: "a set is scaled down and up",
			Constant: oneOrdinal + "; " + inOrder,
			Gate:     true, Policy: whenScaled, Lag: true, Budget: Budget{Scale: 2},
		},
		{
			Name: "set, annotation", About: "the same where the API server drops the field",
			Constant: oneOrdinal + "; " + inOrder,
			Policy:   both, Lag: true, Budget: Budget{Scale: 2},
		},
		{
			Name:     "set, field, parallel",
			About:    "a set with Parallel is scaled down and up, and the caches of its controller lag",
			Constant: oneOrdinal + "; " + upToDate,
			Gate:     true, Policy: both, Parallel: true, ManagerLag: true, Budget: Budget{Scale: 2, Stale: 1},
		},
		{
			Name: "set, annotation, parallel", About: "the same by annotation",
			Constant: oneOrdinal + "; " + upToDate,
			Policy:   whenScaled, Parallel: true, ManagerLag: true, Budget: Budget{Scale: 2, Stale: 1},
		},
		{
			Name:     "set, field, pod deleted",
			About:    "a pod is deleted by hand, then its set is scaled down, and up",
			Constant: oneOrdinal + "; " + inOrder + "; " + upToDate,
			Gate:     true, Policy: whenScaled, ManagerLag: true, Budget: Budget{Scale: 2, Pod: 1},
		},
		{
			Name: "set, annotation, pod deleted", About: "the same by annotation",
			Constant: oneOrdinal + "; " + inOrder + "; " + upToDate,
			Policy:   both, ManagerLag: true, Budget: Budget{Scale: 2, Pod: 1},
		},
		{
			Name:     "set, pod deleted, lag",
			About:    "a pod is deleted by hand, then its set is scaled down, and watches lag",
			Constant: oneOrdinal + "; " + inOrder,
			Gate:     true, Policy: whenScaled, Lag: true, Budget: Budget{Scale: 1, Pod: 1},
		},
	}
}

// wide returns worlds with more than one ordinal.
func wide() []World {
	return []World{
		{
			Name: "set, two ordinals, field", About: "two replicas become one, none, and two again",
			Constant: upToDate,
			Settled:  true, Ordinals: 2, Gate: true, Policy: whenScaled, Budget: Budget{Scale: 2},
		},
		{
			Name: "set, two ordinals, annotation", About: "the same by annotation",
			Constant: upToDate,
			Settled:  true, Ordinals: 2, Policy: both, Budget: Budget{Scale: 2},
		},
		{
			Name: "set, two ordinals, parallel", About: "the same with Parallel",
			Constant: upToDate,
			Settled:  true, Ordinals: 2, Parallel: true, Policy: both, Budget: Budget{Scale: 2},
		},
		{
			Name: "set, start", About: "the first ordinal is moved, and the set scaled",
			Constant: upToDate,
			Ordinals: 2, Size: 1, Gate: true, Policy: whenScaled, Budget: Budget{Scale: 1, Start: 1},
		},
		{
			Name: "set, start, annotation", About: "the same by annotation",
			Constant: upToDate,
			Settled:  true, Ordinals: 2, Size: 1, Policy: both, Budget: Budget{Scale: 1, Start: 1},
		},
		{
			Name:     "set, never used",
			About:    "a claim that a user has created for an ordinal that has never had a pod",
			Constant: upToDate,
			Settled:  true, Unused: true, Ordinals: 2, Size: 1, Policy: both, Budget: Budget{Scale: 2},
		},
	}
}

// turned returns worlds about policies that change.
func turned() []World {
	every := []policy{retain, whenScaled, whenDeleted, both}
	return []World{
		{
			Name: "set, field turned", About: "the field is turned in all directions while the set is scaled",
			Constant: oneOrdinal + "; " + upToDate,
			Gate:     true, Policy: retain, Turns: every, Budget: Budget{Scale: 2, Turn: 2},
		},
		{
			Name:     "set, annotation turned",
			About:    "the annotation is turned in all directions, removed and made invalid",
			Constant: oneOrdinal + "; " + upToDate,
			Turns:    append(every, none, invalid), Budget: Budget{Scale: 2, Turn: 2},
		},
		{
			Name: "set, turned, lag", About: "the annotation is turned, and watches lag",
			Constant: oneOrdinal + "; " + oneLeader,
			Settled:  true, Policy: both, Turns: []policy{retain, both}, Lag: true, Budget: Budget{Scale: 1, Turn: 2},
		},
		{
			Name: "set, gate",
			About: "the feature gate is switched on, off and on again while the set is scaled and its policy " +
				"turned",
			Constant: oneOrdinal + "; " + upToDate,
			Policy:   both, Turns: []policy{none, both}, Both: true, Budget: Budget{Gate: 2, Scale: 2, Turn: 1},
		},
		{
			Name: "set, hold", About: "the hold is added and removed, and the set deleted",
			Constant: oneOrdinal + "; " + upToDate,
			Policy:   both, Ways: all(), Budget: Budget{Scale: 2, Delete: 1, Hold: 1, Unhold: 1},
		},
		{
			Name: "set, hold, field", About: "the hold is added and removed, and watches lag",
			Constant: oneOrdinal,
			Settled:  true, Gate: true, Policy: whenScaled, Lag: true,
			Budget: Budget{Scale: 1, Pod: 1, Hold: 1, Unhold: 1},
		},
		{
			Name: "set, stripped", About: "a user removes the mark or the owners that volume-guard has added",
			Constant: oneOrdinal + "; " + upToDate,
			Policy:   both, Counts: true, Budget: Budget{Scale: 2, Strip: 2},
		},
		{
			Name: "set, contested",
			About: "kube-controller-manager has the feature gate, and the API server does not: it removes the " +
				"owners that volume-guard adds",
			Constant: oneOrdinal + "; " + upToDate,
			Policy:   both, Skew: true, Counts: true, Budget: Budget{Scale: 2, Pod: 1},
		},
	}
}

// ended returns worlds about sets that are deleted, and about other owners.
func ended() []World {
	return []World{
		{
			Name:     "set, deleted",
			About:    "a set is deleted in three ways, and created again with fewer replicas",
			Constant: oneOrdinal + "; " + upToDate,
			Settled:  true, Policy: both, Ways: all(), ManagerLag: true,
			Budget: Budget{Scale: 1, Delete: 1, Recreate: 1},
		},
		{
			Name:     "set, deleted, lag",
			About:    "a set is deleted in three ways while owners are added, and watches lag",
			Constant: oneOrdinal + "; " + oneLeader,
			Policy:   both, Ways: all(), Lag: true, Budget: Budget{Delete: 1, Scale: 1},
		},
		{
			Name: "set, deleted, field", About: "the same where Kubernetes has the policy",
			Constant: oneOrdinal + "; " + upToDate,
			Gate:     true, Policy: both, Ways: all(), Budget: Budget{Scale: 2, Delete: 1, Recreate: 1},
		},
		{
			Name:     "set, deleted, kept",
			About:    "a set whose claims are kept when it is deleted, or not any more",
			Constant: oneOrdinal + "; " + upToDate,
			Policy:   whenScaled, Ways: all(), Turns: []policy{whenScaled, both},
			Budget: Budget{Scale: 1, Turn: 2, Delete: 1},
		},
	}
}

// shared returns worlds about claims that others have, too.
func shared() []World {
	return []World{
		{
			Name: "set, other owner", About: "claims have another owner, which is deleted",
			Constant: oneOrdinal + "; " + upToDate,
			Foreign:  plain, Policy: both, Ways: []cascade{background},
			Budget: Budget{Scale: 2, Delete: 1, Foreign: 1},
		},
		{
			Name: "set, other controller", About: "claims have another controller, which is deleted",
			Constant: oneOrdinal + "; " + upToDate,
			Foreign:  controller, Gate: true, Policy: both, Ways: []cascade{background},
			Budget: Budget{Scale: 2, Delete: 1, Foreign: 1},
		},
		{
			Name:     "set, other owner, field",
			About:    "the same with an owner that is no controller, in the field",
			Constant: oneOrdinal + "; " + upToDate,
			Foreign:  plain, Gate: true, Policy: whenScaled, Budget: Budget{Scale: 2, Pod: 1, Foreign: 1},
		},
		{
			Name: "set, deleted, turned", About: "a policy is turned just before its set is deleted, or scaled",
			Constant: oneOrdinal + "; " + upToDate,
			Policy:   both, Ways: all(), Turns: []policy{retain, whenDeleted, both},
			Budget: Budget{Scale: 1, Turn: 2, Delete: 1},
		},
		{
			Name:     "set, claim deleted",
			About:    "a user deletes the claim of a pod, which runs, and scales the set",
			Constant: oneOrdinal + "; " + upToDate,
			Policy:   both, Ways: all(), Budget: Budget{Scale: 2, Pod: 1, Claim: 1, Stale: 1},
		},
		{
			Name:     "set, names collide",
			About:    "two sets give their claims the same names, until one is deleted",
			Constant: oneOrdinal + "; that the second set is there from the start: there is no precondition across objects",
			Collide:  true, Policy: both, Ways: all(), Budget: Budget{Scale: 2, Delete: 1},
		},
		{
			Name: "set, uninstalled", About: "volume-guard is uninstalled at any moment",
			Constant: oneOrdinal + "; " + oneLeader,
			Policy:   both, Lag: true, Budget: Budget{Scale: 2, Remove: 1},
		},
	}
}

// restored returns worlds about claims that come back with the annotations of deleted claims.
func restored() []World {
	return []World{
		{
			Name:     "set, restored",
			About:    "a claim that was scaled away is restored from a backup, and the set scaled again",
			Constant: oneOrdinal + "; " + ownersGone,
			Gate:     true, Policy: whenScaled, Lag: true, Budget: Budget{Scale: 2, Restore: 1},
		},
		{
			Name: "set, restored, annotation", About: "the same by annotation, and the set is deleted",
			Constant: oneOrdinal + "; " + upToDate + "; " + ownersGone,
			Policy:   both, Ways: all(), Budget: Budget{Scale: 2, Delete: 1, Recreate: 1, Restore: 2},
		},
		{
			Name:     "set, restored, deleted by hand",
			About:    "pods and claims are deleted by hand, claims restored, and the annotation turned",
			Constant: oneOrdinal + "; " + upToDate + "; " + ownersGone,
			Policy:   both, Turns: []policy{retain, both},
			Budget: Budget{Scale: 1, Turn: 1, Pod: 1, Claim: 1, Hold: 1, Unhold: 1, Restore: 2},
		},
	}
}

// broken returns worlds with faults.
func broken() []World {
	return []World{
		{
			Name: "set, calls fail", About: "calls fail or lose their answer",
			Constant: oneOrdinal + "; " + upToDate,
			Policy:   both, Budget: Budget{Scale: 2, API: 2},
		},
		{
			Name: "set, calls fail, field", About: "the same where Kubernetes has the policy",
			Constant: oneOrdinal + "; " + upToDate,
			Gate:     true, Policy: whenScaled, Budget: Budget{Scale: 2, Pod: 1, API: 2},
		},
		{
			Name: "set, late calls", About: "a replica ends with a write under way, which arrives later or not",
			Constant: oneOrdinal + "; " + upToDate,
			Policy:   both, Budget: Budget{Scale: 2, Pod: 1, Late: 1},
		},
		{
			Name: "set, late calls, field", About: "the same where Kubernetes has the policy",
			Constant: oneOrdinal + "; " + upToDate,
			Gate:     true, Policy: whenScaled, Budget: Budget{Scale: 2, Pod: 1, Late: 1},
		},
		{
			Name: "set, crash", About: "a replica ends between its steps, and watches lag",
			Constant: oneOrdinal + "; " + inOrder,
			Gate:     true, Policy: whenScaled, Lag: true, Budget: Budget{Scale: 1, Pod: 1, Crash: 1},
		},
		{
			Name: "set, two leaders", About: "two replicas act at the same time",
			Constant: oneOrdinal + "; " + upToDate,
			Replicas: 2, Policy: both, Budget: Budget{Scale: 2},
		},
		{
			Name: "set, two leaders, field", About: "the same where Kubernetes has the policy",
			Constant: oneOrdinal + "; " + upToDate,
			Replicas: 2, Gate: true, Policy: whenScaled, Budget: Budget{Scale: 1, Pod: 1, Crash: 1},
		},
		{
			Name:     "set, manager restarts",
			About:    "kube-controller-manager starts again, or syncs for no reason, and its caches lag",
			Constant: oneOrdinal + "; " + upToDate,
			Gate:     true, Policy: both, ManagerLag: true, Budget: Budget{Scale: 2, Manager: 1, Sync: 1, Stale: 1},
		},
	}
}

// deep returns the larger worlds.
func deep() []World {
	return []World{
		{
			Name: "set, field, deep", About: "scaled and deleted by hand, and all watches lag",
			Constant: oneOrdinal,
			Deep:     true, Gate: true, Policy: whenScaled, Lag: true, ManagerLag: true,
			Budget: Budget{Scale: 2, Pod: 1},
		},
		{
			Name: "set, annotation, deep", About: "the same by annotation",
			Constant: oneOrdinal,
			Deep:     true, Policy: both, Lag: true, ManagerLag: true, Budget: Budget{Scale: 2, Pod: 1},
		},
		{
			Name: "set, two leaders, deep", About: "two replicas whose watches lag",
			Constant: oneOrdinal,
			Deep:     true, Replicas: 2, Policy: both, Lag: true, Budget: Budget{Scale: 2},
		},
		{
			Name: "set, deleted, deep", About: "a set is deleted and created again, and all watches lag",
			Constant: oneOrdinal,
			Deep:     true, Policy: both, Ways: all(), Lag: true, ManagerLag: true,
			Budget: Budget{Scale: 1, Delete: 1, Recreate: 1},
		},
		{
			Name:     "set, two ordinals, deep",
			About:    "two replicas are scaled and deleted by hand, and watches lag",
			Constant: oneLeader,
			Deep:     true, Ordinals: 2, Policy: both, Lag: true, Budget: Budget{Scale: 2, Pod: 1},
		},
	}
}

// Bounds describes the bounds of the world.
func (w *World) Bounds() string {
	return search.Bounds(w.Budget, fmt.Sprintf("ordinals %d, replicas %d", w.Ordinals, w.Replicas),
		search.If(w.Gate, "gate"), search.If(w.Skew, "skew"), search.If(w.Parallel, "parallel"),
		search.If(w.Collide, "collide"), search.If(w.Both, "both"), search.If(w.Unused, "unused"),
		search.If(w.Unborn, "unborn"), search.If(w.Foreign != noRef, "foreign"), search.If(w.Lag, "lag"),
		search.If(w.ManagerLag, "manager lags"), search.If(w.Settled, "settled"))
}
