package singlenode

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Workload says how pods are created.
type Workload uint8

const (
	// Beside is the zero value: a user creates the pods next to each other, each with a name of its own.
	Beside Workload = iota
	// ReplicaSet creates a pod when none of the others counts, and a terminating pod does not count.
	ReplicaSet
	// StatefulSet creates a pod when the object of its predecessor is gone. All pods have one name.
	StatefulSet
)

// Guard is a guard that a world can lack, to show its purpose.
type Guard uint8

const (
	// Nothing is the zero value: no guard is missing.
	Nothing Guard = iota
	// TheCompareAndSwap: without it, writes to claims are bound to the UID alone.
	TheCompareAndSwap
	// TheOrder: without it, pods order their claims differently.
	TheOrder
	// TheList: without it, the list of the pods comes from a cache.
	TheList
	// TheHolder: without it, the read of the holder before a lock is freed comes from a cache.
	TheHolder
	// TheUID: without it, the end of any pod counts for the lock of a later one.
	TheUID
	// TheFinalizer: without it, the finalizer of a claim does not keep the claim.
	TheFinalizer
	// TheHold: without it, pods that are not held lose their gate.
	TheHold
	// TheOtherGates: without it, the gates of other programs do not count.
	TheOtherGates
	// TheRun: without it, a fence counts for a pod regardless of the run of the node that started it.
	TheRun
)

// World names bounds: the objects, and how often each event may happen.
type World struct {
	search.Purpose
	// Pods and Claims are the maximal numbers of pods and claims.
	Pods, Claims int
	// Uses are the claims of each pod in the order of its volumes, by default the first.
	Uses     [maxPods][]int
	Workload Workload
	// Mode is the initial mode of the namespace.
	Mode mode
	// PVAsks means that the PV of each claim has the label.
	PVAsks bool
	// Running means that the first pod was created before the namespace asked for locks, Unheld that no pod is held.
	Running, Unheld bool
	// Unbound means that claims have no PV at first, Ephemeral that the claim is a generic ephemeral volume's.
	Unbound, Ephemeral bool
	// Queued means that pods are created with the gate of another program, too.
	Queued   bool
	Replicas int
	// Lag means that watches deliver a state at any later time, and not at once.
	Lag bool
	// Without is the missing guard.
	Without Guard
	Budget  Budget
}

// Budget bounds the number of each event in one history.
type Budget struct {
	// Delete deletes a pod, Force deletes one by force, Confirm confirms that processes cannot run, Ungate removes a gate
	// by hand, and Preset creates a pod on a node. Foreground deletes a pod in the foreground. Admit removes the gate of
	// another program.
	Delete, Foreground, Force, Confirm, Ungate, Preset, Admit uint8
	// DeleteClaim and Recreate concern a claim, Label adds its label, and Strip removes its lock or finalizer.
	DeleteClaim, Recreate, Label, Strip uint8
	// Turn adds or removes the label of the namespace, Fence and Unfence concern the volumes, and Remove uninstalls
	// volume-guard.
	Turn, Fence, Unfence, Remove uint8
	// Cut cuts a kubelet off, Heal lets it return, Reboot reboots a machine, and End completes a pod.
	Cut, Heal, Reboot, End uint8
	// Crash ends a replica, API lets a call fail or loses its answer, and Late carries out a write after its sender has
	// given it up.
	Crash, API, Late uint8
}

// Worlds returns the explored worlds.
func Worlds() []World {
	worlds := slices.Clone(table)
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

// both are the claims of pods that use two claims in both orders, and one of them.
var both = [maxPods][]int{{0, 1}, {1, 0}, {1}}

// table has the explored worlds.
var table = []World{
	// One pod after the other, and volume-guard itself.
	{Purpose: search.About("lock",
		"a ReplicaSet replaces a pod at once while its kubelet is cut off and returns, and a replica ends between its steps",
		oneClaim, twoPods), Workload: ReplicaSet, Lag: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Crash: 1}},
	{Purpose: search.About("lock, three pods",
		"pods are created and deleted beside each other, and a write is carried out late", oneClaim, noFault, upToDate),
		Pods: 3, Budget: Budget{Delete: 2, Late: 1}},
	{Purpose: search.About("lock, two leaders", "two replicas with watches that lag act at the same time", oneClaim,
		twoPods, noFault, "pods are not deleted: the next world does that"), Replicas: 2, Lag: true},
	{Purpose: search.About("lock, two leaders, late writes",
		"pods are deleted, and a write of one replica is carried out late", oneClaim, twoPods, upToDate),
		Replicas: 2, Budget: Budget{Delete: 1, Crash: 1, Late: 1}},
	{Purpose: search.About("lock, calls fail", "calls fail or lose their answer, twice, and one is carried out late",
		oneClaim, twoPods), Lag: true, Workload: ReplicaSet, Budget: Budget{Delete: 1, API: 2, Late: 1}},
	{Purpose: search.About("lock, StatefulSet", "the replacement has the name of its predecessor", oneClaim, oneLeader,
		twoPods), Workload: StatefulSet, Lag: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Late: 1}},
	{Purpose: search.About("lock, confirmed", "a person confirms the end of a pod whose kubelet is cut off", oneClaim,
		oneLeader, upToDate),
		Workload: ReplicaSet, Pods: 3, Budget: Budget{Delete: 1, Force: 1, Confirm: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("lock, reboot", "a machine reboots, whose kubelet starts pods again or ends them", oneClaim,
		oneLeader), Workload: ReplicaSet, Lag: true, Budget: Budget{Delete: 1, Reboot: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("lock, queued",
		"a queue keeps pods by a gate of its own, admits some of them in any order, and others never", oneClaim, oneLeader,
		twoPods), Queued: true, Lag: true, Budget: Budget{Delete: 1, Admit: 2, Late: 1}},
	{Purpose: search.About("lock, queued, two claims", "the same with pods that use two claims in both orders", upToDate,
		noFault, oneLeader),
		Queued: true, Claims: 2, Pods: 3, Uses: [maxPods][]int{{0, 1}, {1, 0}, {1}}, Budget: Budget{Delete: 1, Admit: 2}},

	// Pods with several claims, and claims that are deleted.
	{Purpose: search.About("lock, two claims", "pods use two claims in both orders, and a third one of them", upToDate,
		noFault), Pods: 3, Claims: 2, Uses: both, Budget: Budget{Delete: 1}},
	{Purpose: search.About("lock, two claims, lag", "two pods use two claims in both orders, and watches lag", twoPods,
		noFault), Claims: 2, Uses: both, Lag: true, Budget: Budget{Delete: 1}},
	{Purpose: search.About("lock, two claims, created again",
		"a claim is deleted and created again, whose UID comes first or last", twoPods, upToDate),
		Claims: 2, Uses: both, Budget: Budget{Delete: 1, DeleteClaim: 1, Recreate: 1}},
	{Purpose: search.About("lock, claim created again",
		"a claim is deleted and created again under pods that use it, and a write is carried out late", twoPods, oneLeader,
		upToDate), Budget: Budget{Delete: 1, DeleteClaim: 1, Recreate: 1, Late: 1}},
	{Purpose: search.About("lock, ephemeral",
		"the claim is that of a generic ephemeral volume, whose pod has its predecessor's name", oneClaim, oneLeader),
		Workload: StatefulSet, Ephemeral: true, Lag: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Late: 1}},
	{Purpose: search.About("lock, ephemeral, foreground",
		"the pod of a generic ephemeral volume is deleted in the foreground, and waits for its claim", oneClaim, oneLeader,
		upToDate), Workload: StatefulSet, Ephemeral: true, Budget: Budget{Foreground: 1, Confirm: 1, Cut: 1, Heal: 1}},

	// Requests for locks.
	{Purpose: search.About("lock, bound late", "a claim is bound to a PV that asks for the lock after pods were created",
		oneClaim, twoPods),
		Mode: singlenode.ModeSelected, PVAsks: true, Unbound: true, Lag: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("lock, bound late, not asked",
		"the same with a PV that does not ask: pods share the claim then", oneClaim, twoPods),
		Mode: singlenode.ModeSelected, Unbound: true, Lag: true, Budget: Budget{Delete: 1}},
	{Purpose: search.About("lock, claim labelled", "the label is added to a claim that pods use", oneClaim, oneLeader),
		Mode: singlenode.ModeSelected, Pods: 3, Budget: Budget{Delete: 1, Label: 1}},
	{Purpose: search.About("lock, opted in", "the label is added to a namespace with a pod that runs, which is deleted",
		oneClaim, oneLeader, twoPods),
		Mode: singlenode.ModeOff, Running: true, Lag: true, Budget: Budget{Delete: 1, Turn: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("lock, opted out", "the label is removed from the namespace and added again", oneClaim,
		twoPods), Lag: true, Budget: Budget{Turn: 2, Late: 1}},
	{Purpose: search.About("lock, uninstalled", "volume-guard is uninstalled while pods wait", oneLeader, upToDate),
		Claims: 2, Uses: [maxPods][]int{{0, 1}, {1}}, Budget: Budget{Delete: 1, DeleteClaim: 1, Remove: 1, API: 1}},
	{Purpose: search.About("lock, not held", "pods that the hold does not keep are deleted by force", oneClaim, oneLeader),
		Unheld: true, Lag: true, Budget: Budget{Delete: 1, Force: 1, Cut: 1}},

	// Changes that admission refuses without a person's word, and that other worlds lack.
	{Purpose: search.About("lock, gate removed", "a user removes the gate of a pod that waits", oneClaim, upToDate,
		oneLeader), Pods: 3, Budget: Budget{Delete: 1, Ungate: 1, Late: 1}},
	{Purpose: search.About("lock, gate removed, lag", "the same with watches that lag", oneClaim, twoPods, oneLeader),
		Lag: true, Budget: Budget{Delete: 1, Ungate: 1}},
	{Purpose: search.About("lock, node preset", "a user creates a pod on a node, without a gate", oneClaim, oneLeader,
		twoPods), Lag: true, Budget: Budget{Delete: 1, Preset: 1}},
	{Purpose: search.About("lock, annotation removed", "a user removes or damages the lock, or removes the finalizer",
		oneClaim, twoPods, oneLeader), Lag: true, Budget: Budget{Strip: 1, Late: 1}},

	// Completed pods, and volumes that a fence keeps from a node.
	{Purpose: search.About("lock, Job", "a pod completes, and the next one uses its claim", oneClaim, twoPods),
		Lag: true, Budget: Budget{Delete: 1, End: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("lock, Job, reboot", "a machine reboots around the end of a pod, and watches are up to date",
		oneClaim, upToDate, twoPods), Budget: Budget{Delete: 1, End: 1, Cut: 1, Heal: 1, Reboot: 1, Crash: 1}},
	{Purpose: search.About("lock, fenced", "a fence keeps the node of a pod that is terminating from the volumes, and "+
		"ends after a reboot, which starts pods again", oneClaim, upToDate),
		Workload: ReplicaSet, Pods: 3, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Fence: 1, Unfence: 1, Reboot: 1, Late: 1}},
	{Purpose: search.About("lock, fenced, lag", "the same with watches that lag", oneClaim, twoPods),
		Workload: ReplicaSet, Lag: true, Budget: Budget{Delete: 1, Cut: 1, Fence: 1, Unfence: 1, Reboot: 1}},
	{Purpose: search.About("lock, fenced, opted in",
		"a pod without a lock is terminating on a node that is fenced from volumes", oneClaim, twoPods),
		Running: true, Lag: true, Budget: Budget{Delete: 1, Cut: 1, Fence: 1, Unfence: 1, Reboot: 1}},
}

// String returns the name of the workload.
func (w Workload) String() string {
	return [...]string{Beside: "beside", ReplicaSet: "ReplicaSet", StatefulSet: "StatefulSet"}[w]
}
