package podsafety

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// verb is the kind of a move. The numbers of calls are added to the verbs of calls.
type verb uint8

const (
	userDeletesPod verb = iota
	userForces
	userForcesUnasked
	userConfirms
	userConfirmsOther
	userDeletesClaim
	userDeletesNode
	userTaints
	userUntaints
	nodeIsFenced
	nodeIsRebooted
	nodeIsUnfenced
	fenceTaints
	fenceUntaints
	graceEnds
	machineStarts
	powerIsCut
	kubeletStarts
	kubeletEnds
	kubeletRegisters
	kubeletRenews
	kubeletIsCutOff
	kubeletReturns
	machineIsReplaced
	kubeletSees
	kubeletReports
	kubeletReportsEnd
	kubeletReportsEndOfInit
	kubeletDeletes
	containerStarts
	containerEnds
	processesEnd
	volumeIsUnmounted
	nodeReadyChanges
	leaseIsCollected
	replacementIsCreated
	podIsBound
	collectorFailsPod
	collectorDeletesPod
	claimIsRemoved
	claimIsCollected
	volumeIsDetached
	volumeIsAttached
	processStarts
	processEnds
	watchShowsPod
	watchShowsNode
	watchShowsClaim
	workerBegins
	workerLocks
	workerSettlesClaim
	unmountGraceEnds
	forceGraceEnds
	leaseGraceEnds
	verbs

	callAnswered verb = 64
	callFails    verb = 80
	answerLost   verb = 96
	noVerb       verb = 112
)

// move is one event: of a replica or a node, about a pod or a node.
type move struct {
	verb verb
	// by is the number of the acting replica, or of the node that a pod is bound to. on is the number of the pod or the
	// node.
	by, on int
}

func (m move) code() search.Move { return uint32(m.verb)<<8 | uint32(m.by)<<4 | uint32(m.on) }

func moveOf(code search.Move) move { return move{verb(code >> 8), int(code >> 4 & 15), int(code & 15)} }

// sentences describe the moves; %[1]d is the pod, %[2]d the replica, %[3]s the node in on, %[4]s the node in by.
var sentences = [verbs]string{
	userDeletesPod:          "a user deletes pod %[1]d",
	userForces:              "a user deletes pod %[1]d by force, which is confirmed",
	userForcesUnasked:       "a user deletes pod %[1]d by force, and is not asked for a confirmation",
	userConfirms:            "a user confirms the force deletion of pod %[1]d",
	userConfirmsOther:       "a user confirms the force deletion of another pod, on pod %[1]d",
	userDeletesClaim:        "a user deletes the claim",
	userDeletesNode:         "a user deletes Node %[3]s",
	userTaints:              "an administrator taints node %[3]s as out of service",
	userUntaints:            "an administrator removes the taint from node %[3]s",
	nodeIsFenced:            "node %[3]s is fenced: its machine is off until it is unfenced",
	nodeIsRebooted:          "node %[3]s is fenced by a reboot",
	nodeIsUnfenced:          "node %[3]s is unfenced",
	fenceTaints:             "the fence taints node %[3]s as out of service",
	fenceUntaints:           "the fence removes its taint from node %[3]s",
	graceEnds:               "the grace period of pod %[1]d passes",
	machineStarts:           "the machine of node %[3]s starts",
	powerIsCut:              "the power of node %[3]s is cut",
	kubeletStarts:           "the kubelet of node %[3]s starts",
	kubeletEnds:             "the kubelet of node %[3]s ends, and its containers run on",
	kubeletRegisters:        "the kubelet of node %[3]s registers",
	kubeletRenews:           "the kubelet of node %[3]s creates its Lease",
	kubeletIsCutOff:         "the kubelet of node %[3]s is cut off",
	kubeletReturns:          "the kubelet of node %[3]s reaches the API server again",
	machineIsReplaced:       "another machine takes the name of node %[3]s",
	kubeletSees:             "the kubelet of pod %[1]d sees how it is",
	kubeletReports:          "the kubelet reports the containers of pod %[1]d",
	kubeletReportsEnd:       "the kubelet reports the end of pod %[1]d",
	kubeletReportsEndOfInit: "the kubelet reports the end of pod %[1]d, whose main container did not run",
	kubeletDeletes:          "the kubelet deletes pod %[1]d",
	containerStarts:         "the container of pod %[1]d starts",
	containerEnds:           "the container of pod %[1]d ends, to be started again",
	processesEnd:            "the kubelet ends the processes of pod %[1]d",
	volumeIsUnmounted:       "the kubelet unmounts the volume of pod %[1]d",
	nodeReadyChanges:        "the condition Ready of node %[3]s follows",
	leaseIsCollected:        "the Lease of node %[3]s is removed",
	replacementIsCreated:    "the StatefulSet controller creates pod %[1]d",
	podIsBound:              "pod %[1]d is bound to node %[4]s",
	collectorFailsPod:       "the pod garbage collector marks pod %[1]d Failed",
	collectorDeletesPod:     "the pod garbage collector deletes pod %[1]d by force",
	claimIsRemoved:          "PVC protection releases the claim, which is gone",
	claimIsCollected:        "the garbage collector deletes the claim of the pod that is gone",
	volumeIsDetached:        "the volume is detached from node %[3]s",
	volumeIsAttached:        "the volume is attached to node %[3]s",
	processStarts:           "replica %[2]d starts",
	processEnds:             "replica %[2]d ends",
	watchShowsPod:           "the watch of replica %[2]d shows pod %[1]d",
	watchShowsNode:          "the watch of replica %[2]d shows node %[3]s",
	watchShowsClaim:         "the watch of replica %[2]d shows the claim",
	workerBegins:            "replica %[2]d works on pod %[1]d",
	workerLocks:             "replica %[2]d works on the lock for pod %[1]d",
	workerSettlesClaim:      "replica %[2]d works on the claim",
	unmountGraceEnds:        "replica %[2]d: the unmount grace of pod %[1]d is over",
	forceGraceEnds:          "replica %[2]d: pod %[1]d has been without grace for the duration of a Lease",
	leaseGraceEnds:          "replica %[2]d: the Lease of the node of pod %[1]d has not changed for its duration",
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	if m.verb < verbs {
		return fmt.Sprintf(sentences[m.verb]+"%[5]s", m.on, m.by, nodeName(m.on), nodeName(m.by), "")
	}
	base, how := callAnswered, "replica %d: %s for pod %d is answered"
	switch {
	case m.verb >= answerLost:
		base, how = answerLost, "replica %d: the answer to %s for pod %d, which was done, is lost"
	case m.verb >= callFails:
		base, how = callFails, "replica %d: %s for pod %d fails"
	}
	calls := [...]string{"nothing", "GET of the pod", "GET of the node", "GET of the Lease", "GET of the fence",
		"the patch of the finalizer", "the deletion without grace"}
	call := "?"
	if n := int(m.verb - base); n < len(calls) {
		call = calls[n]
	}
	return fmt.Sprintf(how, m.by, call, m.on)
}

// Story describes a history, with a sentence for each move.
func (w *World) Story(moves []search.Move) []string {
	var lines []string
	for _, m := range moves {
		lines = append(lines, w.describe(moveOf(m)))
	}
	return lines
}
