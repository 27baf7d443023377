package joint

import (
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

type verb = search.Verb

// Moves by their sentences of pod %[1]d or node %[2]s.
const (
	userDeletesPod          verb = "a user deletes pod %[1]d"
	userDeletesInForeground verb = "a user deletes pod %[1]d in the foreground: its object stays until its claim is gone"
	userForces              verb = "a user deletes pod %[1]d by force"
	userConfirms            verb = "a user confirms that the processes of pod %[1]d cannot run any more"
	userCreatesPod          verb = "a user creates pod %[1]d"
	userDeletesClaim        verb = "a user deletes the claim"
	userTaints              verb = "an administrator taints node a as out of service"
	userUntaints            verb = "an administrator removes the taint from node a"
	userDeletesNode         verb = "an administrator deletes Node a"
	nodeIsFenced            verb = "a NodeFence of node a is created"
	programDeletesFence     verb = "a program deletes the NodeFence"
	userEndsFence           verb = "a person ends the fence (spec.unfence Now)"
	replacementIsCreated    verb = "the controller of the pods creates pod %[1]d"
	podIsBound              verb = "pod %[1]d is bound to node b"
	podIsEvicted            verb = "taint eviction deletes pod %[1]d"
	collectorFailsPod       verb = "the pod garbage collector sets pod %[1]d to Failed"
	collectorDeletesPod     verb = "the pod garbage collector deletes pod %[1]d without grace"
	claimIsRemoved          verb = "the claim is gone, and its volume is deleted"
	claimIsCollected        verb = "the garbage collector deletes the claim"
	claimIsUnprotected      verb = "Kubernetes removes the finalizer of pvc-protection from the claim"
	podIsUnblocked          verb = "the garbage collector lets pod %[1]d go, whose claim is gone"
	volumeIsAttached        verb = "the volume is attached to node %[2]s"
	volumeIsDetached        verb = "the volume is detached from node %[2]s"
	kubeletSees             verb = "the kubelet of pod %[1]d sees how it is"
	kubeletReportsWait      verb = "the kubelet reports that no container of pod %[1]d runs"
	kubeletReportsEnd       verb = "the kubelet reports the end of pod %[1]d"
	kubeletDeletes          verb = "the kubelet sets the grace of pod %[1]d to 0"
	containerStarts         verb = "the container of pod %[1]d starts"
	processesEnd            verb = "the kubelet ends the processes of pod %[1]d"
	volumeIsUnmounted       verb = "the kubelet unmounts the volume of pod %[1]d"
	podCompletes            verb = "pod %[1]d completes"
	containerEnds           verb = "the container of pod %[1]d ends, and waits for its kubelet to start it again"
	machineStarts           verb = "the machine of node a starts"
	kubeletRegisters        verb = "the kubelet of node a writes its boot ID to the Node"
	readyChanges            verb = "the condition Ready of node a changes"
	agentActs               verb = "the agent fences node a, and says so"
	agentActsLate           verb = "the agent that was tried before keeps node a from the volume"
	agentEnds               verb = "the agent was stopped, and ends"
	agentUndoes             verb = "the agent undoes the fence, and says so"
	kubeletIsCutOff         verb = "the kubelet of node a is cut off"
	kubeletReturns          verb = "the kubelet of node a reaches the API server again"
	machineReboots          verb = "the machine of node a stops"
	machineIsReplaced       verb = "another machine takes the name of node a, and the one before runs on"
	holdActs                verb = "volume-guard works on the hold of pod %[1]d"
	gateActs                verb = "volume-guard works on the gate of pod %[1]d"
	lockActs                verb = "volume-guard frees the lock of the claim"
	protectorActs           verb = "volume-guard removes the finalizer of pvc-protection from the claim"
	claimHoldActs           verb = "volume-guard works on the hold of the claim"
	volumeLockActs          verb = "volume-guard works on the VolumeLock of node a"
	fencingActs             verb = "volume-guard works on the fence"
	fenceEnds               verb = "volume-guard writes that the fence ends"
	unmountGraceEnds        verb = "the unmount grace of pod %[1]d is over"
	forceGraceEnds          verb = "the time is over in which a kubelet ends pod %[1]d, which has no grace"
	leaseGraceEnds          verb = "the Lease has been silent for long, for pod %[1]d"
	leaseIsSilent           verb = "the Lease has been silent for long, for the fence"
)

// move is one event, with the number of its pod or node, if it is about one.
type move struct {
	verb
	slot int
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string { return m.Sentence(m.slot, nodeName(uint8(m.slot))) }
