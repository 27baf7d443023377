package joint

import "github.com/csi-reclaimer/csi-reclaimer/test/model/search"

// Agent is the kind of the agent that fences node a.
type Agent uint8

const (
	// NoAgent is the zero value, for a world without fences.
	NoAgent Agent = iota
	// Volumes keeps the machine from the volume.
	Volumes
	// Power powers the machine off, and on again to undo that.
	Power
	// Reboot reboots the machine.
	Reboot
)

// String returns the name of the kind.
func (a Agent) String() string {
	return [...]string{NoAgent: "none", Volumes: "volumes", Power: "power", Reboot: "reboot"}[a]
}

// Guard is a guard that a world can lack, to show its purpose.
type Guard uint8

const (
	// Nothing is the zero value: no guard is missing.
	Nothing Guard = iota
	// TheHoldOfClaims: without it, pvc-protection judges a pod by its phase and its grace alone.
	TheHoldOfClaims
	// TheWord: without it, a final phase counts as the word of the kubelet, regardless of its writer.
	TheWord
	// TheReboot: without it, the deletion of a fence of volumes ends the fence at once.
	TheReboot
	// TheRun: without it, a fence frees locks and VolumeLocks regardless of the run of the node that started the pod.
	TheRun
	// TheList: without it, a fence ends after a reboot, regardless of terminating pods on the node.
	TheList
	// TheStorage: without it, the unmount grace ends by the clock, even while a fence keeps the node from the volume.
	TheStorage
	// TheMachine: without it, another machine under the name of a node counts as its reboot.
	TheMachine
	// TheNode: without it, a grace that was set to 0 shows the unmount, even if the node was not Ready since the end.
	TheNode
	// TheRelease: without it, a pod has the lock of its claim for as long as its object exists.
	TheRelease
	// TheShutDown: without it, a released pod uses its generic ephemeral volume for as long as its object exists.
	TheShutDown
	// TheFinalizer: without it, the finalizer of the hold does not keep the claim of a generic ephemeral volume.
	TheFinalizer
	// TheAttachLock: without it, the API server does not refuse the attachment of a locked volume to another node.
	TheAttachLock
	// TheUnmount: without it, the reboot of a node that a fence keeps from volumes ends the unmount grace of its pods.
	TheUnmount
	// TheWayOut: without it, a fence waits after a reboot for pods that wait for its end.
	TheWayOut
)

// World names bounds: the objects, and how often each event may happen.
type World struct {
	search.Purpose
	Agent Agent
	// Tried means that an agent of volumes was tried before without a result. It may act late, or never.
	Tried bool
	// OptedIn means that the first pod was created before the namespace asked for locks, and has none.
	OptedIn bool
	// Uncovered means that a fence of volumes covers only those of another driver, so that the pods reach their volume.
	Uncovered bool
	// Unlocked means that the namespace asks for no locks. The world then has one pod, which is held.
	Unlocked bool
	// Ephemeral means that the claim is that of a generic ephemeral volume. The world then has one pod.
	Ephemeral bool
	// BuiltIn means that Kubernetes' own controller protects the claim.
	BuiltIn bool
	// Attached means that a node mounts the volume only while it is attached to the node. The namespace asks for no locks.
	Attached bool
	// FencedFirst lets another machine take the name of node a only once a fence has begun, with Attached once a fence
	// keeps the former machine from the volume.
	FencedFirst bool
	// Without is the missing guard.
	Without Guard
	Budget  Budget
}

// Budget bounds the number of each event in one history.
type Budget struct {
	// Delete deletes a pod, Foreground deletes one in the foreground, Force deletes one by force, if the policies allow
	// it, and Confirm confirms that the processes of a pod cannot run. DeleteClaim deletes the claim, and Early creates
	// the second pod beside the first.
	Delete, Foreground, Force, Confirm, DeleteClaim, Early uint8
	// Taint, Untaint and DeleteNode concern node a. Fence creates a fence, Now ends it by a person's word, and Unfence
	// lets a program delete it.
	Taint, Untaint, DeleteNode, Fence, Now, Unfence uint8
	// Cut cuts the kubelet of node a off, Heal lets it return, and Reboot reboots its machine. Replace gives the name of
	// the node to another machine, End completes a pod, and Restart ends a container, which its kubelet starts again.
	Cut, Heal, Reboot, Replace, End, Restart uint8
}

// broken are the worlds in which the engines are known to break a promise, with the promise. Without its line, a world
// is explored with the others.
var broken = map[string]string{
	// The fence concerns the machine that the Node shows. No object shows that the pod runs on the machine before it.
	"joint, another machine fenced": "S3",
	// The fence concerns the former machine. The kubelet of the next machine has seen the pod, and not its deletion, when
	// it writes its boot ID. Until then the lock counts as a lock of the fenced run.
	"joint, volumes, another machine": "S1",
	// The pod has completed, and its node goes away before the unmount. It is not terminating, so that no VolumeLock keeps
	// its volume.
	"joint, attached, completed": "S1",
	// The pod is held, because the kubelet of the next machine does not know its containers. But that kubelet has mounted
	// no volume and its Node is Ready, so that the volume is detached without a VolumeLock.
	"joint, attached, another machine": "S1",
}

// Worlds returns the explored worlds.
func Worlds() []World {
	var worlds []World
	for _, w := range all {
		if broken[w.Name] == "" {
			worlds = append(worlds, w)
		}
	}
	return worlds
}

const (
	noFence  = "fences: worlds of their own have them"
	noReturn = "the node stays away: another world has it return"
	noReboot = "machines: another world has them reboot"
	alone    = "the replacement: its claim would be another; the finalizer of the hold, which the claim has before the " +
		"pod starts"
	claims = "the claim: other worlds delete it; the taint of an administrator: test/model/podsafety detaches by it"
)

// all has the worlds, and those that break a promise.
var all = []World{
	// The hold, the locks and pvc-protection.
	{Purpose: search.About("joint", "a pod of a node that is cut off and returns is deleted, with its claim, and replaced",
		noFence), Budget: Budget{Delete: 2, DeleteClaim: 1, Early: 1, Cut: 1, Heal: 1, Reboot: 1}},
	{Purpose: search.About("joint, force",
		"pods are deleted by force, after a confirmation or where the policies ask for none", noFence, noReboot),
		Budget: Budget{Delete: 1, Force: 1, Confirm: 1, DeleteClaim: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("joint, completed", "a pod completes by itself, and its machine reboots", noFence),
		Budget: Budget{Delete: 1, Force: 1, DeleteClaim: 1, Early: 1, Cut: 1, Heal: 1, Reboot: 1, End: 1}},
	{Purpose: search.About("joint, out of service",
		"node a is declared out of service, and the pod garbage collector ends its pods", noFence),
		Budget: Budget{Delete: 1, DeleteClaim: 1, Taint: 1, Untaint: 1, Cut: 1, Heal: 1, Reboot: 1}},
	{Purpose: search.About("joint, Node deleted", "Node a is deleted, whose kubelet works or not", noFence),
		Budget: Budget{Delete: 1, DeleteClaim: 1, DeleteNode: 1, Cut: 1, Heal: 1, Reboot: 1}},

	// The hold and pvc-protection, without locks.
	{Purpose: search.About("joint, no locks",
		"the claim of a pod is deleted that the pod garbage collector or a user ends", noFence, noReboot,
		"the second pod: nothing keeps it from the volume"), Unlocked: true,
		Budget: Budget{Delete: 1, Force: 1, DeleteClaim: 1, Taint: 1, DeleteNode: 1, Cut: 1, Heal: 1, End: 1}},

	// A generic ephemeral volume, whose claim goes with its pod.
	{Purpose: search.About("joint, ephemeral, foreground",
		"a pod and the locked claim of its ephemeral volume are deleted, in the foreground too", noFence, alone),
		Ephemeral: true,
		Budget: Budget{Delete: 1, Foreground: 1, Force: 1, Confirm: 1, DeleteClaim: 1, DeleteNode: 1, Cut: 1, Heal: 1,
			Reboot: 1, End: 1}},
	{Purpose: search.About("joint, ephemeral, built in", "the same without locks, and Kubernetes protects the claim",
		noFence, alone), Ephemeral: true, BuiltIn: true, Unlocked: true,
		Budget: Budget{Delete: 1, Foreground: 1, Force: 1, Confirm: 1,
			DeleteClaim: 1, Taint: 1, DeleteNode: 1, Cut: 1, Heal: 1, End: 1}},

	// An ended pod whose volume is mounted.
	{Purpose: search.About("joint, forced before unmount", "a pod is deleted by force between its end and its unmount",
		noFence, noReboot), Budget: Budget{Delete: 1, Force: 1}},
	{Purpose: search.About("joint, collected before unmount",
		"the pod garbage collector deletes a pod between its end and its unmount, on a node that is Ready after that",
		noFence, noReboot), Budget: Budget{Delete: 1, Taint: 1, Untaint: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("joint, ended before outage", "a kubelet is cut off between the end of a pod and its deletion",
		noFence, noReturn), Budget: Budget{Delete: 1, Cut: 1}},

	// Node fencing.
	{Purpose: search.About("joint, volumes", "a fence keeps node a from the volume, and ends after a reboot",
		"its object is not deleted: another world does that"),
		Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Heal: 1, Reboot: 1}},
	{Purpose: search.About("joint, volumes, ended", "a person ends the fence by hand",
		"its object is not deleted: another world does that"),
		Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Now: 1, Cut: 1, Reboot: 1}},
	{Purpose: search.About("joint, volumes, deleted", "a program deletes the fence, as once the node is Ready",
		"the fence is not ended by hand, and the kubelet is not cut off: other worlds do that"),
		Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Unfence: 1, Reboot: 1}},
	{Purpose: search.About("joint, power", "a fence powers node a off, and a program deletes it",
		"the fence is not ended by hand: that is a deletion where no volumes are fenced"),
		Agent: Power, Budget: Budget{Delete: 1, Fence: 1, Unfence: 1, Cut: 1, Reboot: 1}},
	{Purpose: search.About("joint, rebooted", "an agent reboots node a, and a program deletes the fence",
		"the fence is not ended by hand: that is a deletion where no volumes are fenced"),
		Agent: Reboot, Budget: Budget{Delete: 1, Fence: 1, Unfence: 1, Cut: 1, Reboot: 1}},
	{Purpose: search.About("joint, two agents", "an agent of volumes acts late or never, and another one reboots node a",
		"earlier attempts have ended before the fence begins; its object is not deleted: another world does that"),
		Agent: Reboot, Tried: true, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Heal: 1, Reboot: 1}},
	{Purpose: search.About("joint, volumes, opted in", "a fence keeps a pod from the volume that has no lock",
		"its object is not deleted: another world does that"),
		Agent: Volumes, OptedIn: true, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Heal: 1, Reboot: 1}},
	{Purpose: search.About("joint, volumes, completed", "a pod completes whose node is kept from the volume",
		"its object is not deleted, and the kubelet is not cut off: other worlds do that"),
		Agent: Volumes, Budget: Budget{Fence: 1, Reboot: 1, End: 1}},
	{Purpose: search.About("joint, volumes, another driver",
		"a fence keeps node a from another volume, and a kubelet starts the pod again after the reboot",
		"its object is not deleted, and the kubelet is not cut off: other worlds do that"),
		Agent: Volumes, Uncovered: true, Budget: Budget{Delete: 1, Fence: 1, Reboot: 1, End: 1}},
	{Purpose: search.About("joint, volumes, Node deleted",
		"the Node of a fence is deleted, and its kubelet creates it again", noReboot,
		"its object is not deleted: another world does that"),
		Agent: Volumes, Budget: Budget{Delete: 1, DeleteNode: 1, Fence: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("joint, power, Node deleted", "the same with a fence that powers node a off", noReboot,
		"its object is not deleted: another world does that"),
		Agent: Power, Budget: Budget{Delete: 1, DeleteNode: 1, Fence: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("joint, volumes, claim", "the claim is deleted while a fence keeps node a from its volume",
		noReturn, "its object is not deleted: another world does that"),
		Agent: Volumes, Budget: Budget{Delete: 2, DeleteClaim: 1, Fence: 1, Cut: 1}},

	// A volume that is attached, and its VolumeLock.
	{Purpose: search.About("joint, attached",
		"a volume is detached from a node that is away, and attached to another node", noFence, claims),
		Attached: true, Budget: Budget{Delete: 1, Confirm: 1, DeleteNode: 1, Cut: 1, Heal: 1, Reboot: 1, Restart: 1}},
	{Purpose: search.About("joint, attached, fenced",
		"a fence keeps the node from the volume that is attached to another node",
		"the fence is not deleted: another world does that", claims),
		Attached: true, Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Heal: 1, Reboot: 1, Restart: 1}},
	{Purpose: search.About("joint, attached, Node deleted",
		"the same, and the Node is deleted, whose kubelet works or not", noReboot, claims),
		Attached: true, Agent: Volumes, Budget: Budget{Delete: 1, DeleteNode: 1, Fence: 1, Unfence: 1, Cut: 1, Heal: 1}},
	{Purpose: search.About("joint, attached, another machine fenced",
		"another machine takes the name of a node that is fenced, and starts its pods", claims), Attached: true,
		Agent: Volumes, FencedFirst: true, Budget: Budget{Delete: 1, DeleteNode: 1, Fence: 1, Cut: 2, Replace: 1}},
	{Purpose: search.About("joint, attached, completed", "a pod completes on a node that goes away before the unmount",
		noFence, claims), Attached: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, End: 1}},
	{Purpose: search.About("joint, attached, another machine",
		"another machine takes the name of a node whose machine runs on", noFence, claims),
		Attached: true, Budget: Budget{Delete: 1, Cut: 1, Replace: 1}},

	// Another machine that takes the name of node a.
	{Purpose: search.About("joint, another machine", "another machine takes the name of node a", noFence),
		Budget: Budget{Delete: 1, DeleteClaim: 1, Cut: 1, Replace: 1}},
	{Purpose: search.About("joint, volumes, another machine", "another machine takes the name of a node that is fenced",
		noReturn), Agent: Volumes, FencedFirst: true, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Replace: 1}},
	{Purpose: search.About("joint, another machine fenced", "another machine takes the name of a node, and is fenced",
		noReturn), Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Replace: 1}},
}
