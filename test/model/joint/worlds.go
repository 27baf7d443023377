package joint

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

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
	// Name is the name in tables and on the command line.
	Name string
	// About is the purpose of the world, in a sentence.
	About string
	// Constant names constants that matter for the purpose, and the reason why they hide no error.
	Constant string
	Agent    Agent
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
	for _, w := range all() {
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
)

func all() []World {
	return slices.Concat(pods(), unlocked(), ephemeral(), unmounts(), fences(), attached(), replaced())
}

// pods returns worlds about the hold, the locks and pvc-protection.
func pods() []World {
	return []World{
		{
			Name: "joint", About: "a pod of a node that is cut off and returns is deleted, with its claim, and replaced",
			Constant: noFence, Budget: Budget{Delete: 2, DeleteClaim: 1, Early: 1, Cut: 1, Heal: 1, Reboot: 1},
		},
		{
			Name: "joint, force", About: "pods are deleted by force, after a confirmation or where the policies ask for none",
			Constant: noFence + "; " + noReboot,
			Budget:   Budget{Delete: 1, Force: 1, Confirm: 1, DeleteClaim: 1, Cut: 1, Heal: 1},
		},
		{
			Name: "joint, completed", About: "a pod completes by itself, and its machine reboots", Constant: noFence,
			Budget: Budget{Delete: 1, Force: 1, DeleteClaim: 1, Early: 1, Cut: 1, Heal: 1, Reboot: 1, End: 1},
		},
		{
			Name: "joint, out of service", About: "node a is declared out of service, and the pod garbage collector ends its " +
				"pods", Constant: noFence,
			Budget: Budget{Delete: 1, DeleteClaim: 1, Taint: 1, Untaint: 1, Cut: 1, Heal: 1, Reboot: 1},
		},
		{
			Name: "joint, Node deleted", About: "Node a is deleted, whose kubelet works or not", Constant: noFence,
			Budget: Budget{Delete: 1, DeleteClaim: 1, DeleteNode: 1, Cut: 1, Heal: 1, Reboot: 1},
		},
	}
}

// unlocked returns worlds about the hold and pvc-protection, without locks.
func unlocked() []World {
	return []World{
		{
			Name: "joint, no locks", About: "the claim of a pod is deleted that the pod garbage collector or a user ends",
			Constant: noFence + "; " + noReboot + "; the second pod: nothing keeps it from the volume", Unlocked: true,
			Budget: Budget{Delete: 1, Force: 1, DeleteClaim: 1, Taint: 1, DeleteNode: 1, Cut: 1, Heal: 1, End: 1},
		},
	}
}

// ephemeral returns worlds about a generic ephemeral volume, whose claim goes with its pod.
func ephemeral() []World {
	locked := Budget{Delete: 1, Foreground: 1, Force: 1, Confirm: 1, DeleteClaim: 1, DeleteNode: 1, Cut: 1, Heal: 1,
		Reboot: 1, End: 1}
	builtIn := locked
	builtIn.Taint, builtIn.Reboot = 1, 0
	const alone = "; the replacement: its claim would be another; the finalizer of the hold, which the claim has before " +
		"the pod starts"
	return []World{
		{
			Name: "joint, ephemeral, foreground", About: "a pod and the locked claim of its ephemeral volume are deleted, in " +
				"the foreground too", Ephemeral: true, Constant: noFence + alone, Budget: locked,
		},
		{
			Name: "joint, ephemeral, built in", About: "the same without locks, and Kubernetes protects the claim",
			Ephemeral: true, BuiltIn: true, Unlocked: true, Constant: noFence + alone, Budget: builtIn,
		},
	}
}

// attached returns worlds about a volume that is attached, and its VolumeLock.
func attached() []World {
	const claims = "the claim: other worlds delete it; the taint of an administrator: test/model/podsafety detaches by it"
	return []World{
		{
			Name: "joint, attached", About: "a volume is detached from a node that is away, and attached to another node",
			Attached: true, Constant: noFence + "; " + claims,
			Budget: Budget{Delete: 1, Confirm: 1, DeleteNode: 1, Cut: 1, Heal: 1, Reboot: 1, Restart: 1},
		},
		{
			Name: "joint, attached, fenced", About: "a fence keeps the node from the volume that is attached to another node",
			Attached: true, Agent: Volumes, Constant: "the fence is not deleted: another world does that; " + claims,
			Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Heal: 1, Reboot: 1, Restart: 1},
		},
		{
			Name: "joint, attached, Node deleted", About: "the same, and the Node is deleted, whose kubelet works or not",
			Attached: true, Agent: Volumes, Constant: noReboot + "; " + claims,
			Budget: Budget{Delete: 1, DeleteNode: 1, Fence: 1, Unfence: 1, Cut: 1, Heal: 1},
		},
		{
			Name: "joint, attached, another machine fenced", About: "another machine takes the name of a node that is fenced, " +
				"and starts its pods", Attached: true, Agent: Volumes, FencedFirst: true, Constant: claims,
			Budget: Budget{Delete: 1, DeleteNode: 1, Fence: 1, Cut: 2, Replace: 1},
		},
		{
			Name: "joint, attached, completed", About: "a pod completes on a node that goes away before the unmount",
			Attached: true, Constant: noFence + "; " + claims, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, End: 1},
		},
		{
			Name: "joint, attached, another machine", About: "another machine takes the name of a node whose machine runs on",
			Attached: true, Constant: noFence + "; " + claims, Budget: Budget{Delete: 1, Cut: 1, Replace: 1},
		},
	}
}

// unmounts returns worlds about an ended pod whose volume is mounted.
func unmounts() []World {
	return []World{
		{
			Name: "joint, forced before unmount", About: "a pod is deleted by force between its end and its unmount",
			Constant: noFence + "; " + noReboot, Budget: Budget{Delete: 1, Force: 1},
		},
		{
			Name: "joint, collected before unmount", About: "the pod garbage collector deletes a pod between its end and its " +
				"unmount, on a node that is Ready after that", Constant: noFence + "; " + noReboot,
			Budget: Budget{Delete: 1, Taint: 1, Untaint: 1, Cut: 1, Heal: 1},
		},
		{
			Name: "joint, ended before outage", About: "a kubelet is cut off between the end of a pod and its deletion",
			Constant: noFence + "; " + noReturn, Budget: Budget{Delete: 1, Cut: 1},
		},
	}
}

// fences returns worlds with node fencing.
func fences() []World {
	returns := Budget{Delete: 1, Fence: 1, Cut: 1, Heal: 1, Reboot: 1}
	ended, deleted, gone := returns, returns, returns
	late := Budget{Delete: 1, Fence: 1, Cut: 1, Heal: 1, Reboot: 1}
	ended.Now, ended.Heal, deleted.Unfence, deleted.Heal, gone.DeleteNode, gone.Reboot = 1, 0, 1, 0, 1, 0
	return []World{
		{
			Name: "joint, volumes", About: "a fence keeps node a from the volume, and ends after a reboot", Agent: Volumes,
			Constant: "its object is not deleted: another world does that", Budget: returns,
		},
		{
			Name: "joint, volumes, ended", About: "a person ends the fence by hand", Agent: Volumes, Budget: ended,
			Constant: "its object is not deleted: another world does that",
		},
		{
			Name: "joint, volumes, deleted", About: "a program deletes the fence, as once the node is Ready", Agent: Volumes,
			Constant: "the fence is not ended by hand, and the kubelet is not cut off: other worlds do that",
			Budget:   Budget{Delete: 1, Fence: 1, Unfence: 1, Reboot: 1},
		},
		{
			Name: "joint, power", About: "a fence powers node a off, and a program deletes it", Agent: Power, Budget: deleted,
			Constant: "the fence is not ended by hand: that is a deletion where no volumes are fenced",
		},
		{
			Name: "joint, rebooted", About: "an agent reboots node a, and a program deletes the fence", Agent: Reboot,
			Constant: "the fence is not ended by hand: that is a deletion where no volumes are fenced", Budget: deleted,
		},
		{
			Name: "joint, two agents", About: "an agent of volumes acts late or never, and another one reboots node a",
			Agent: Reboot, Tried: true, Budget: late,
			Constant: "earlier attempts have ended before the fence begins; its object is not deleted: another world does that",
		},
		{
			Name: "joint, volumes, opted in", About: "a fence keeps a pod from the volume that has no lock", Agent: Volumes,
			OptedIn: true, Constant: "its object is not deleted: another world does that", Budget: returns,
		},
		{
			Name: "joint, volumes, completed", About: "a pod completes whose node is kept from the volume", Agent: Volumes,
			Constant: "its object is not deleted, and the kubelet is not cut off: other worlds do that",
			Budget:   Budget{Fence: 1, Reboot: 1, End: 1},
		},
		{
			Name: "joint, volumes, another driver", About: "a fence keeps node a from another volume, and a kubelet starts " +
				"the pod again after the reboot", Agent: Volumes, Uncovered: true,
			Constant: "its object is not deleted, and the kubelet is not cut off: other worlds do that",
			Budget:   Budget{Delete: 1, Fence: 1, Reboot: 1, End: 1},
		},
		{
			Name: "joint, volumes, Node deleted", About: "the Node of a fence is deleted, and its kubelet creates it again",
			Agent: Volumes, Constant: noReboot + "; its object is not deleted: another world does that", Budget: gone,
		},
		{
			Name: "joint, power, Node deleted", About: "the same with a fence that powers node a off", Agent: Power,
			Constant: noReboot + "; its object is not deleted: another world does that", Budget: gone,
		},
		{
			Name: "joint, volumes, claim", About: "the claim is deleted while a fence keeps node a from its volume",
			Agent: Volumes, Constant: noReturn + "; its object is not deleted: another world does that",
			Budget: Budget{Delete: 2, DeleteClaim: 1, Fence: 1, Cut: 1},
		},
	}
}

// replaced returns worlds about another machine that takes the name of node a.
func replaced() []World {
	return []World{
		{
			Name: "joint, another machine", About: "another machine takes the name of node a", Constant: noFence,
			Budget: Budget{Delete: 1, DeleteClaim: 1, Cut: 1, Replace: 1},
		},
		{
			Name: "joint, volumes, another machine", About: "another machine takes the name of a node that is fenced",
			Agent: Volumes, FencedFirst: true, Constant: noReturn, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Replace: 1},
		},
		{
			Name: "joint, another machine fenced", About: "another machine takes the name of a node, and is fenced",
			Agent: Volumes, Constant: noReturn, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Replace: 1},
		},
	}
}

// Bounds describes the bounds of the world.
func (w *World) Bounds() string {
	pods, agent := "nodes 2, pods 2, claim 1", ""
	if w.Unlocked || w.Ephemeral {
		pods = "nodes 2, pod 1, claim 1"
	}
	if w.Agent != NoAgent {
		agent = "agent " + [...]string{"", "Volumes", "UntilUnfenced", "Reboot"}[w.Agent]
	}
	return search.Bounds(w.Budget, pods, agent, search.If(w.Tried, "after one of Volumes"))
}
