package joint

import (
	"strconv"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// verb is the kind of a move.
type verb uint8

const (
	userDeletesPod verb = iota
	userDeletesInForeground
	userForces
	userConfirms
	userCreatesPod
	userDeletesClaim
	userTaints
	userUntaints
	userDeletesNode
	nodeIsFenced
	programDeletesFence
	userEndsFence
	replacementIsCreated
	podIsBound
	podIsEvicted
	collectorFailsPod
	collectorDeletesPod
	claimIsRemoved
	claimIsCollected
	claimIsUnprotected
	podIsUnblocked
	volumeIsAttached
	volumeIsDetached
	kubeletSees
	kubeletReportsWait
	kubeletReportsEnd
	kubeletDeletes
	containerStarts
	processesEnd
	volumeIsUnmounted
	podCompletes
	containerEnds
	machineStarts
	kubeletRegisters
	readyChanges
	agentActs
	agentActsLate
	agentEnds
	agentUndoes
	kubeletIsCutOff
	kubeletReturns
	machineReboots
	machineIsReplaced
	holdActs
	gateActs
	lockActs
	protectorActs
	claimHoldActs
	volumeLockActs
	fencingActs
	fenceEnds
	unmountGraceEnds
	forceGraceEnds
	leaseGraceEnds
	leaseIsSilent
	verbs
)

// move is one event, with the number of its pod or node, if it is about one.
type move struct {
	verb verb
	slot int
}

func (m move) code() search.Move { return uint32(m.verb)<<4 | uint32(m.slot) }

func moveOf(code search.Move) move { return move{verb(code >> 4), int(code & 15)} }

// sentences describe the moves of pod %d or node %n.
var sentences = [verbs]string{
	userDeletesPod:          "a user deletes pod %d",
	userDeletesInForeground: "a user deletes pod %d in the foreground, which keeps its object until its claim is gone",
	userForces:              "a user deletes pod %d by force",
	userConfirms:            "a user confirms that the processes of pod %d cannot run any more",
	userCreatesPod:          "a user creates pod %d",
	userDeletesClaim:        "a user deletes the claim",
	userTaints:              "an administrator taints node a as out of service",
	userUntaints:            "an administrator removes the taint from node a",
	userDeletesNode:         "an administrator deletes Node a",
	nodeIsFenced:            "a NodeFence of node a is created",
	programDeletesFence:     "a program deletes the NodeFence",
	userEndsFence:           "a person ends the fence (spec.unfence Now)",
	replacementIsCreated:    "the controller of the pods creates pod %d",
	podIsBound:              "pod %d is bound to node b",
	podIsEvicted:            "taint eviction deletes pod %d",
	collectorFailsPod:       "the pod garbage collector sets pod %d to Failed",
	collectorDeletesPod:     "the pod garbage collector deletes pod %d without grace",
	claimIsRemoved:          "the claim is gone, and its volume is deleted",
	claimIsCollected:        "the garbage collector deletes the claim",
	claimIsUnprotected:      "Kubernetes removes the finalizer of pvc-protection from the claim",
	podIsUnblocked:          "the garbage collector lets pod %d go, whose claim is gone",
	volumeIsAttached:        "the volume is attached to node %n",
	volumeIsDetached:        "the volume is detached from node %n",
	kubeletSees:             "the kubelet of pod %d sees how it is",
	kubeletReportsWait:      "the kubelet reports that no container of pod %d runs",
	kubeletReportsEnd:       "the kubelet reports the end of pod %d",
	kubeletDeletes:          "the kubelet sets the grace of pod %d to 0",
	containerStarts:         "the container of pod %d starts",
	processesEnd:            "the kubelet ends the processes of pod %d",
	volumeIsUnmounted:       "the kubelet unmounts the volume of pod %d",
	podCompletes:            "pod %d completes",
	containerEnds:           "the container of pod %d ends, and waits for its kubelet to start it again",
	machineStarts:           "the machine of node a starts",
	kubeletRegisters:        "the kubelet of node a writes its boot ID to the Node",
	readyChanges:            "the condition Ready of node a changes",
	agentActs:               "the agent fences node a, and says so",
	agentActsLate:           "the agent that was tried before keeps node a from the volume",
	agentEnds:               "the agent was stopped, and ends",
	agentUndoes:             "the agent undoes the fence, and says so",
	kubeletIsCutOff:         "the kubelet of node a is cut off",
	kubeletReturns:          "the kubelet of node a reaches the API server again",
	machineReboots:          "the machine of node a stops",
	machineIsReplaced:       "another machine takes the name of node a, and the one before runs on",
	holdActs:                "volume-guard works on the hold of pod %d",
	gateActs:                "volume-guard works on the gate of pod %d",
	lockActs:                "volume-guard frees the lock of the claim",
	protectorActs:           "volume-guard removes the finalizer of pvc-protection from the claim",
	claimHoldActs:           "volume-guard works on the hold of the claim",
	volumeLockActs:          "volume-guard works on the VolumeLock of node a",
	fencingActs:             "volume-guard works on the fence",
	fenceEnds:               "volume-guard writes that the fence ends",
	unmountGraceEnds:        "the unmount grace of pod %d is over",
	forceGraceEnds:          "the time is over in which a kubelet ends pod %d, which has no grace",
	leaseGraceEnds:          "the Lease has been silent for long, for pod %d",
	leaseIsSilent:           "the Lease has been silent for long, for the fence",
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	return strings.NewReplacer("%d", strconv.Itoa(m.slot), "%n", nodeName(uint8(m.slot))).Replace(sentences[m.verb])
}

// Story describes a history, with a sentence for each move.
func (w *World) Story(moves []search.Move) []string {
	var lines []string
	for _, m := range moves {
		lines = append(lines, w.describe(moveOf(m)))
	}
	return lines
}
