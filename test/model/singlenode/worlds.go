package singlenode

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// Workload is who creates the pods. The zero value: a user creates each, beside the others.
type Workload uint8

const (
	// Beside: a user creates the pods, each with a name of its own.
	Beside Workload = iota
	// ReplicaSet: a pod is created when none of the others counts: a pod that is terminating does not.
	ReplicaSet
	// StatefulSet: a pod is created when the object of the one before is gone. They have one name.
	StatefulSet
)

// Guard is what a world can lack, to show what it is for. The zero value: nothing.
type Guard uint8

const (
	// Nothing is lacking.
	Nothing Guard = iota
	// TheCompareAndSwap: writes to claims are bound to the UID alone.
	TheCompareAndSwap
	// TheOrder: pods order their claims differently.
	TheOrder
	// TheList: the list of the pods is from a cache.
	TheList
	// TheHolder: so is the read of the holder before a lock is freed.
	TheHolder
	// TheFinalizer: that of a claim does not keep it.
	TheFinalizer
	// TheHold: pods that are not held lose their gate.
	TheHold
	// TheRun: a fence counts for a pod whichever run of the node started it.
	TheRun
)

// World names bounds: what there is, and how often what can happen does.
type World struct {
	// Name is how it is called in tables and on the command line.
	Name string
	// About says in a sentence what it is for.
	About string
	// Constant is what it holds constant although it matters for what the world is about, and why that hides nothing.
	Constant string
	// Pods is how many pods there can be, and Claims how many claims.
	Pods, Claims int
	// Uses are the claims of each pod in the order of its volumes, by default the first.
	Uses     [maxPods][]int
	Workload Workload
	// Mode is what the namespace asks for at first.
	Mode mode
	// PVAsks: the PV of each claim has the label.
	PVAsks bool
	// Running: the first pod was created before the namespace asked for locks. Unheld: no pod is held.
	Running, Unheld bool
	// Unbound: claims have no PV at first. Ephemeral: the claim is that of a generic ephemeral volume.
	Unbound, Ephemeral bool
	Replicas           int
	// Lag: watches show what is at any later time. Without, at once.
	Lag bool
	// Without is the guard that is lacking.
	Without Guard
	Budget  Budget
}

// Budget is how often each thing may happen in one history.
type Budget struct {
	// What people do with pods. Delete: a deletion. Force: one by force. Confirm: the word that processes cannot run.
	// Ungate: a gate is removed by hand. Preset: a pod is created on a node.
	Delete, Force, Confirm, Ungate, Preset uint8
	// What they do with claims. DeleteClaim, Recreate: a claim. Label: it is added. Strip: lock or finalizer is removed.
	DeleteClaim, Recreate, Label, Strip uint8
	// Turn: the label of the namespace is added or removed. Fence, Unfence: of the volumes. Remove: volume-guard is
	// uninstalled.
	Turn, Fence, Unfence, Remove uint8
	// What breaks. Cut: a kubelet is cut off. Heal: and returns. Reboot: a machine does. End: a pod completes.
	Cut, Heal, Reboot, End uint8
	// Crash: a replica ends. API: calls that fail, or whose answer is lost. Late: writes that are carried out after their
	// sender has given them up.
	Crash, API, Late uint8
}

// Worlds are the bounds that are explored.
func Worlds() []World {
	var worlds []World
	for _, some := range [][]World{replaced(), several(), asked(), words(), ended()} {
		worlds = append(worlds, some...)
	}
	for i := range worlds {
		worlds[i].complete()
	}
	return worlds
}

func (w *World) complete() {
	w.Replicas, w.Pods, w.Claims = max(w.Replicas, 1), max(w.Pods, 2), max(w.Claims, 1)
	if w.Mode == 0 {
		w.Mode = singlenode.ModeAll
	}
}

const (
	oneClaim  = "one claim: what is decided of a lock depends on its claim alone, and worlds of their own have two"
	oneLeader = "one replica: a second does what one does after a crash, and two have a world of their own"
	upToDate  = "watches: what they show frees nothing and removes no gate, and other worlds have them lag"
	twoPods   = "two pods: a third waits as the second does, and worlds of their own have three"
	noFault   = "nodes and processes of volume-guard: worlds of their own break them"
)

// replaced are about one pod after the other, and about volume-guard itself.
func replaced() []World {
	return []World{
		{
			Name: "lock", About: "a ReplicaSet replaces a pod at once while its kubelet is cut off and returns, and a replica " +
				"ends between its steps", Constant: oneClaim + "; " + twoPods, Workload: ReplicaSet, Lag: true,
			Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Crash: 1},
		},
		{
			Name: "lock, three pods", About: "pods are created and deleted beside each other, and a write is carried out late",
			Constant: oneClaim + "; " + noFault + "; " + upToDate, Pods: 3, Budget: Budget{Delete: 2, Late: 1},
		},
		{
			Name: "lock, two leaders", About: "two replicas with watches that lag act at the same time", Replicas: 2, Lag: true,
			Constant: oneClaim + "; " + twoPods + "; " + noFault + "; pods are not deleted: the next world does that",
		},
		{
			Name: "lock, two leaders, late writes", About: "pods are deleted, and a write of one replica is carried out late",
			Replicas: 2, Constant: oneClaim + "; " + twoPods + "; " + upToDate, Budget: Budget{Delete: 1, Crash: 1, Late: 1},
		},
		{
			Name: "lock, calls fail", About: "calls fail or lose their answer, twice, and one is carried out late", Lag: true,
			Constant: oneClaim + "; " + twoPods, Workload: ReplicaSet, Budget: Budget{Delete: 1, API: 2, Late: 1},
		},
		{
			Name: "lock, StatefulSet", About: "the replacement has the name of its predecessor", Workload: StatefulSet,
			Constant: oneClaim + "; " + oneLeader + "; " + twoPods, Lag: true,
			Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Late: 1},
		},
		{
			Name: "lock, confirmed", About: "a person confirms the end of a pod whose kubelet is cut off", Workload: ReplicaSet,
			Constant: oneClaim + "; " + oneLeader + "; " + upToDate, Pods: 3,
			Budget: Budget{Delete: 1, Force: 1, Confirm: 1, Cut: 1, Heal: 1},
		},
		{
			Name: "lock, reboot", About: "a machine reboots, whose kubelet starts pods again or ends them", Workload: ReplicaSet,
			Constant: oneClaim + "; " + oneLeader, Lag: true,
			Budget: Budget{Delete: 1, Reboot: 1, Cut: 1, Heal: 1},
		},
	}
}

// several are about pods with several claims, and about claims that are deleted.
func several() []World {
	both := [maxPods][]int{{0, 1}, {1, 0}, {1}}
	return []World{
		{
			Name: "lock, two claims", About: "pods use two claims in both orders, and a third one of them", Pods: 3, Claims: 2,
			Uses: both, Constant: upToDate + "; " + noFault, Budget: Budget{Delete: 1},
		},
		{
			Name: "lock, two claims, lag", About: "two pods use two claims in both orders, and watches lag", Claims: 2,
			Uses: both, Constant: twoPods + "; " + noFault, Lag: true, Budget: Budget{Delete: 1},
		},
		{
			Name:  "lock, two claims, created again",
			About: "a claim is deleted and created again, whose UID comes first or last", Claims: 2, Uses: both,
			Constant: twoPods + "; " + upToDate, Budget: Budget{Delete: 1, DeleteClaim: 1, Recreate: 1},
		},
		{
			Name: "lock, claim created again", About: "a claim is deleted and created again under pods that use it, and a " +
				"write is carried out late", Constant: twoPods + "; " + oneLeader + "; " + upToDate,
			Budget: Budget{Delete: 1, DeleteClaim: 1, Recreate: 1, Late: 1},
		},
		{
			Name:     "lock, ephemeral",
			About:    "the claim is that of a generic ephemeral volume, whose pod has its predecessor's name",
			Workload: StatefulSet, Ephemeral: true, Constant: oneClaim + "; " + oneLeader, Lag: true,
			Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Late: 1},
		},
	}
}

// asked are about who asks for locks.
func asked() []World {
	return []World{
		{
			Name: "lock, bound late", About: "a claim is bound to a PV that asks for the lock after pods were created",
			Mode: singlenode.ModeSelected, PVAsks: true, Unbound: true, Constant: oneClaim + "; " + twoPods, Lag: true,
			Budget: Budget{Delete: 1, Cut: 1, Heal: 1},
		},
		{
			Name: "lock, bound late, not asked", About: "the same with a PV that does not ask: pods share the claim then",
			Mode: singlenode.ModeSelected, Unbound: true, Constant: oneClaim + "; " + twoPods, Lag: true,
			Budget: Budget{Delete: 1},
		},
		{
			Name: "lock, claim labelled", About: "the label is added to a claim that pods use", Mode: singlenode.ModeSelected,
			Constant: oneClaim + "; " + oneLeader, Pods: 3, Budget: Budget{Delete: 1, Label: 1},
		},
		{
			Name: "lock, opted in", About: "the label is added to a namespace with a pod that runs, which is deleted",
			Mode: singlenode.ModeOff, Running: true, Constant: oneClaim + "; " + oneLeader + "; " + twoPods, Lag: true,
			Budget: Budget{Delete: 1, Turn: 1, Cut: 1, Heal: 1},
		},
		{
			Name: "lock, opted out", About: "the label is removed from the namespace and added again",
			Constant: oneClaim + "; " + twoPods, Lag: true, Budget: Budget{Turn: 2, Late: 1},
		},
		{
			Name: "lock, uninstalled", About: "volume-guard is uninstalled while pods wait", Claims: 2,
			Uses: [maxPods][]int{{0, 1}, {1}}, Constant: oneLeader + "; " + upToDate,
			Budget: Budget{Delete: 1, DeleteClaim: 1, Remove: 1, API: 1},
		},
		{
			Name: "lock, not held", About: "pods that the hold does not keep are deleted by force", Unheld: true,
			Constant: oneClaim + "; " + oneLeader, Lag: true, Budget: Budget{Delete: 1, Force: 1, Cut: 1},
		},
	}
}

// words are about what admission refuses without a person's word: in the other worlds it does not happen.
func words() []World {
	return []World{
		{
			Name: "lock, gate removed", About: "somebody removes the gate of a pod that waits", Pods: 3,
			Constant: oneClaim + "; " + upToDate + "; " + oneLeader, Budget: Budget{Delete: 1, Ungate: 1, Late: 1},
		},
		{
			Name: "lock, gate removed, lag", About: "the same with watches that lag", Lag: true,
			Constant: oneClaim + "; " + twoPods + "; " + oneLeader, Budget: Budget{Delete: 1, Ungate: 1},
		},
		{
			Name: "lock, node preset", About: "somebody creates a pod on a node, without a gate", Lag: true,
			Constant: oneClaim + "; " + oneLeader + "; " + twoPods, Budget: Budget{Delete: 1, Preset: 1},
		},
		{
			Name: "lock, annotation removed", About: "somebody removes or damages the lock, or removes the finalizer",
			Constant: oneClaim + "; " + twoPods + "; " + oneLeader, Lag: true, Budget: Budget{Strip: 1, Late: 1},
		},
	}
}

// ended are about pods that have completed, and volumes that a fence keeps from a node.
func ended() []World {
	return []World{
		{
			Name: "lock, Job", About: "a pod completes, and the next one uses its claim", Lag: true,
			Constant: oneClaim + "; " + twoPods, Budget: Budget{Delete: 1, End: 1, Cut: 1, Heal: 1},
		},
		{
			Name: "lock, Job, reboot", About: "a machine reboots around the end of a pod, and watches are up to date",
			Constant: oneClaim + "; " + upToDate + "; " + twoPods,
			Budget:   Budget{Delete: 1, End: 1, Cut: 1, Heal: 1, Reboot: 1, Crash: 1},
		},
		{
			Name: "lock, fenced", About: "a fence keeps the node of a pod that is terminating from the volumes, and ends " +
				"after a reboot, which starts pods again", Workload: ReplicaSet, Constant: oneClaim + "; " + upToDate, Pods: 3,
			Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Fence: 1, Unfence: 1, Reboot: 1, Late: 1},
		},
		{
			Name: "lock, fenced, lag", About: "the same with watches that lag", Workload: ReplicaSet, Lag: true,
			Constant: oneClaim + "; " + twoPods, Budget: Budget{Delete: 1, Cut: 1, Fence: 1, Unfence: 1, Reboot: 1},
		},
		{
			Name: "lock, fenced, opted in", About: "a pod without a lock is terminating on a node that is fenced from volumes",
			Running: true, Constant: oneClaim + "; " + twoPods, Lag: true,
			Budget: Budget{Delete: 1, Cut: 1, Fence: 1, Unfence: 1, Reboot: 1},
		},
	}
}

// Bounds says in words what there is, and what may happen how often.
func (w *World) Bounds() string {
	parts := []string{fmt.Sprintf("%v: pods %d, claims %d, replicas %d", w.Workload, w.Pods, w.Claims, w.Replicas)}
	for _, f := range []struct {
		on   bool
		name string
	}{{w.Lag, "lag"}, {w.Mode == singlenode.ModeSelected, "selected"}, {w.PVAsks, "PV asks"}, {w.Running, "running"},
		{w.Unheld, "unheld"}, {w.Unbound, "unbound"}, {w.Ephemeral, "ephemeral"}} {
		if f.on {
			parts = append(parts, f.name)
		}
	}
	budget := reflect.ValueOf(w.Budget)
	for i := range budget.NumField() {
		if n := budget.Field(i).Uint(); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", budget.Type().Field(i).Name, n))
		}
	}
	return strings.Join(parts, ", ")
}

// String returns the workload in words.
func (w Workload) String() string {
	return [...]string{Beside: "beside", ReplicaSet: "ReplicaSet", StatefulSet: "StatefulSet"}[w]
}
