package podsafety

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// World names bounds: the objects, and how often each event may happen.
type World struct {
	search.Purpose
	// Pods is the maximal number of pods, one after the other under one name.
	Pods int
	// Beside adds a second pod with a name of its own and the same claim.
	Beside bool
	// Unheld means that the first pod was created before the namespace asked for the hold, Unbound that it has no node,
	// and Starting that its kubelet has not started it.
	Unheld, Unbound, Starting bool
	// Older means that kubelets do not track generations.
	Older bool
	// Attach means that volumes are attached, Ephemeral that the claim is a generic ephemeral volume's, of the first pod.
	Attach, Ephemeral bool
	// Refusals means that kubelets may refuse a pod that no kubelet has reported yet, and write their machine to the Node.
	Refusals bool
	// Without is the guard that is missing.
	Without Guard
	// NoPodGC means that the cluster has no pod garbage collector.
	NoPodGC  bool
	Replicas int
	// Lag means that watches deliver a state at any later time, and not at once.
	Lag    bool
	Budget Budget
}

// Budget bounds the number of each event in one history.
type Budget struct {
	// Force deletes a confirmed pod by force, Unasked an unconfirmed one. Confirm sets the annotation, and Mistake sets it
	// with another UID. Withdraw removes the confirmation again. DeleteNode deletes the Node object, Taint adds the taint
	// out-of-service, and Untaint removes it.
	Delete, Force, Unasked, Confirm, Mistake, Withdraw, DeleteClaim, DeleteNode, Taint, Untaint uint8
	// Fence begins a fence that keeps the machine off, Reboot one that reboots it, and Unfence ends the fence.
	Fence, Reboot, Unfence uint8
	// Cut cuts a kubelet off, Heal lets it return, and KubeletEnds ends its process, which starts again. PowerCut reboots
	// the machine, and Container ends a container, which starts again. Replace gives the name of a node that is cut off to
	// another machine.
	Cut, Heal, KubeletEnds, PowerCut, Container, Replace uint8
	// Refuse has a kubelet refuse a pod, and Beat has it write the status of its Node again.
	Refuse, Beat uint8
	// Crash ends a replica, and API lets a call fail or loses its answer.
	Crash, API uint8
}

// Guard is a guard of the evidence about a refused pod.
type Guard uint8

const (
	NoGuard Guard = iota
	// TheMachine is the comparison of the machine of the node, and TheHeartbeat the wait for a write of its status.
	TheMachine
	TheHeartbeat
	// TheReport is the report of the kubelet that it finds no container of the pod.
	TheReport
	// TheRecord is the record that no kubelet could know the pod when the node was seen.
	TheRecord
)

// broken are the guards, and the promise that breaks without each in the world "hold, refused".
var broken = map[Guard]string{TheMachine: "S1", TheHeartbeat: "S1", TheReport: "S1", TheRecord: "S1"}

// Worlds returns the explored worlds.
func Worlds() []World {
	worlds := slices.Clone(table)
	for i := range worlds {
		w := &worlds[i]
		w.Replicas, w.Pods = max(w.Replicas, 1), max(w.Pods, 2)
	}
	return worlds
}

const (
	noAttach  = "attachment: a pod that is held wants its volume as any other, and worlds of their own detach"
	oneNode   = "the second node: a replacement runs on it, and its faults are those of the first"
	upToDate  = "watches: what they show is never evidence, and the worlds in which they lag are about the same moves"
	oneLeader = "one replica: a second does what one does after a crash, and two have a world of their own"
)

// table has the explored worlds.
var table = []World{
	// Kubelets that are cut off, end, and return.
	{Purpose: search.About("hold", "a pod is deleted, gracefully or by force, while its kubelet is cut off and "+
		"returns, and a replica ends between its steps", noAttach, oneNode),
		Lag: true, Budget: Budget{Delete: 1, Unasked: 1, Cut: 1, Heal: 1, Crash: 1}},
	{Purpose: search.About("hold, calls fail", "calls to the API server fail or lose their answer, twice, and watches lag",
		noAttach, oneNode), Lag: true, Budget: Budget{Delete: 1, Force: 1, Confirm: 1, API: 2}},
	{Purpose: search.About("hold, reboot",
		"the machine reboots with a new boot ID, its kubelet ends, and both return while the pod is deleted by force",
		noAttach, upToDate), Budget: Budget{Delete: 1, Unasked: 1, Cut: 1, Heal: 1, PowerCut: 1, KubeletEnds: 1}},
	{Purpose: search.About("hold, empty statuses",
		"a kubelet that is cut off before it has reported that it started the pod, or that a container runs again", noAttach,
		upToDate), Starting: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Container: 1, Taint: 1, Untaint: 1}},
	{Purpose: search.About("hold, another machine", "another machine takes the name of a node that is cut off, and its "+
		"kubelet reports the end of containers that it does not know", noAttach, upToDate),
		Budget: Budget{Delete: 1, Unasked: 1, Cut: 1, Replace: 1}},
	{Purpose: search.About("hold, two leaders", "two replicas act at the same time", noAttach, oneNode),
		Replicas: 2, Budget: Budget{Delete: 1, Confirm: 1, Force: 1, Cut: 1, Crash: 1}},
	{Purpose: search.About("hold, unmount",
		"a pod is deleted by force, after a confirmation, between the end of its processes and the unmount", noAttach,
		oneNode), Lag: true, Budget: Budget{Delete: 1, Confirm: 1, Force: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("hold, unmount, not refused",
		"a pod is deleted by force between the end of its processes and the unmount, without a confirmation", noAttach,
		oneNode), Budget: Budget{Delete: 1, Unasked: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("hold, older kubelet", "a kubelet that does not track generations", noAttach, upToDate),
		Older: true, Budget: Budget{Delete: 1, Unasked: 1, Cut: 1, Heal: 1, Taint: 1, Untaint: 1}},
	{Purpose: search.About("hold, added", "the hold is added to a pod that runs already, which is deleted meanwhile",
		noAttach, oneNode), Unheld: true, Lag: true, Budget: Budget{Delete: 1, Unasked: 1, Cut: 1, API: 1}},
	{Purpose: search.About("hold, never bound", "a pod is deleted before or after it is bound to a node", noAttach,
		oneNode), Unbound: true, Lag: true, Budget: Budget{Delete: 1, Unasked: 1, Cut: 1, API: 1}},

	// Declarations of administrators.
	{Purpose: search.About("hold, Node deleted",
		"a Node object is deleted while its kubelet works or is cut off, and comes back with a new UID", noAttach, oneLeader),
		Budget: Budget{Delete: 1, DeleteNode: 1, Cut: 1, Heal: 1, KubeletEnds: 1}},
	{Purpose: search.About("hold, Node deleted, no pod GC", "the same in a cluster without the pod garbage collector",
		noAttach, upToDate), NoPodGC: true, Budget: Budget{Delete: 1, DeleteNode: 1, Cut: 1, Heal: 1, KubeletEnds: 1}},
	{Purpose: search.About("hold, out of service",
		"the out-of-service taint on a node that is Ready or not, removed again", noAttach, upToDate),
		Budget: Budget{Delete: 1, Unasked: 1, Taint: 1, Untaint: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("hold, stale watch",
		"watches that show a taint, or a node that is away, long after it is not so", noAttach, oneLeader,
		"the kubelet stays cut off"), Lag: true, Budget: Budget{Unasked: 1, Taint: 1, Untaint: 1, Cut: 1}},
	{Purpose: search.About("hold, confirmed", "force deletions are confirmed, for the pod or by mistake for another",
		noAttach, upToDate), Budget: Budget{Delete: 1, Force: 1, Unasked: 1, Confirm: 1, Mistake: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("hold, withdrawn",
		"the confirmation of a force deletion is withdrawn while watches lag, and a replica ends between its steps", noAttach,
		oneNode, "the kubelet stays cut off"),
		Lag: true, Budget: Budget{Unasked: 1, Confirm: 1, Withdraw: 1, Cut: 1, Crash: 1, API: 1}},

	// Fenced nodes.
	{Purpose: search.About("hold, fenced", "a node is fenced, unfenced, and cut off again long after", noAttach, upToDate),
		Budget: Budget{Delete: 1, Fence: 1, Unfence: 1, Cut: 2, Heal: 1}},
	{Purpose: search.About("hold, rebooted by a fence", "an agent reboots the node before or after the pod is deleted",
		noAttach, upToDate), Budget: Budget{Delete: 1, Reboot: 1, Unfence: 1, Cut: 2, Heal: 1}},

	// The volume.
	{Purpose: search.About("hold, claim", "the claim is deleted while its pod is, by force, and the kubelet is cut off",
		noAttach, oneNode), Lag: true, Budget: Budget{Delete: 1, Unasked: 1, DeleteClaim: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("hold, ephemeral", "the claim of a generic ephemeral volume is deleted before or after its "+
		"pod, which loses its grace by force or with its Node", noAttach,
		"the replacement: its claim would be another; the finalizer, which the claim has before the pod starts"),
		Ephemeral: true, Lag: true, Budget: Budget{Delete: 1, Unasked: 1, DeleteClaim: 1, DeleteNode: 1, Cut: 1, Crash: 1}},
	{Purpose: search.About("hold, attach", "another pod of the claim is to run on the second node while the kubelet of "+
		"the first is cut off, and the volume is detached by force", oneLeader),
		Attach: true, Beside: true, Lag: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Crash: 1}},
	{Purpose: search.About("hold, attach, out of service", "the same, and the node is tainted as out of service",
		upToDate), Attach: true, Beside: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Taint: 1}},
	{Purpose: search.About("hold, attach, container",
		"the same with a container that waits to be started again, which the attach-detach controller takes for ended",
		upToDate), Attach: true, Beside: true, Budget: Budget{Delete: 1, Unasked: 1, Cut: 1, Heal: 1, Container: 1}},

	// Pods that their kubelet refuses.
	{Purpose: search.About("hold, refused", "a kubelet refuses a pod, and another machine takes the name of the node, "+
		"as no watch shows, before or after the former machine runs the pod", noAttach, oneNode,
		"the former machine does not return"),
		Refusals: true, Lag: true, Budget: Budget{Delete: 1, Cut: 1, Replace: 1, Refuse: 1, Beat: 2, Crash: 1}},
	{Purpose: search.About("hold, refused again",
		"a kubelet that restarts refuses a pod that runs, of which no kubelet has reported a container", noAttach, upToDate,
		"one machine"),
		Refusals: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, KubeletEnds: 1, PowerCut: 1, Refuse: 1, Beat: 2}},
}
