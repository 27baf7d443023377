package singlenode

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// verb is the kind of a move. The numbers of calls are added to the verbs of calls.
type verb uint8

const (
	userCreatesPod verb = iota
	userPresetsNode
	userDeletesPod
	userDeletesInForeground
	userForces
	userConfirms
	userRemovesGate
	queueAdmits
	userDeletesClaim
	userCreatesClaim
	userCreatesClaimFirst
	userLabelsClaim
	userRemovesLock
	userDamagesLock
	userRemovesFinalizer
	userOptsIn
	userOptsOut
	guardIsUninstalled
	replacementIsCreated
	podIsBound
	podIsReleased
	podIsRemoved
	claimIsRemoved
	claimIsBound
	claimIsCreatedFor
	claimIsCollected
	kubeletSees
	kubeletReportsEnd
	containerStarts
	processesEnd
	podCompletes
	volumeIsUnmounted
	kubeletIsCutOff
	kubeletReturns
	machineReboots
	kubeletShowsBoot
	nodeIsFenced
	fencingListsPods
	nodeIsUnfenced
	processStarts
	processEnds
	watchShowsNamespace
	watchShowsFence
	watchShowsPod
	watchShowsClaim
	workerBegins
	workerBeginsLock
	unmountGraceEnds
	pauseEnds
	callLands
	verbs

	callAnswered verb = 64
	callFails    verb = 80
	answerLost   verb = 96
	callIsLate   verb = 112
	noVerb       verb = 128
)

// move is one event: of a replica or a node, about a pod, a claim or a node.
type move struct {
	verb verb
	// by is the number of the acting replica, or of the node that a pod is bound to. on is the number of the pod, the
	// claim or the node, and from locks on the number of a lock.
	by, on int
}

func (m move) code() search.Move { return uint32(m.verb)<<8 | uint32(m.by)<<4 | uint32(m.on) }

func moveOf(code search.Move) move { return move{verb(code >> 8), int(code >> 4 & 15), int(code & 15)} }

// sentences describe the moves; %[1]d is the pod or claim, %[2]d the replica, %[3]s the node in on, %[4]s the node in
// by.
var sentences = [verbs]string{
	userCreatesPod:          "a user creates pod %[1]d",
	userPresetsNode:         "a user creates pod %[1]d without a gate, on node %[4]s",
	userDeletesPod:          "a user deletes pod %[1]d",
	userDeletesInForeground: "a user deletes pod %[1]d in the foreground, which keeps its object until its claim is gone",
	userForces:              "a user deletes pod %[1]d by force",
	userConfirms:            "a user confirms that the processes of pod %[1]d cannot run any more",
	userRemovesGate:         "a user removes the gate of pod %[1]d",
	queueAdmits:             "a queue removes its gate of pod %[1]d",
	userDeletesClaim:        "a user deletes claim %[1]d",
	userCreatesClaim:        "a user creates claim %[1]d again",
	userCreatesClaimFirst:   "a user creates claim %[1]d again, whose UID comes before those of the others",
	userLabelsClaim:         "a user adds the label to claim %[1]d",
	userRemovesLock:         "a user removes the lock of claim %[1]d",
	userDamagesLock:         "a user damages the lock of claim %[1]d",
	userRemovesFinalizer:    "a user removes the finalizer of claim %[1]d",
	userOptsIn:              "an administrator adds the label to the namespace",
	userOptsOut:             "an administrator removes the label from the namespace",
	guardIsUninstalled:      "volume-guard is uninstalled",
	replacementIsCreated:    "the controller of the set creates pod %[1]d",
	podIsBound:              "pod %[1]d is bound to node %[4]s",
	podIsReleased:           "the hold of pod %[1]d goes, and its object stays",
	podIsRemoved:            "pod %[1]d is gone",
	claimIsRemoved:          "claim %[1]d is gone",
	claimIsBound:            "claim %[1]d is bound to a PV",
	claimIsCreatedFor:       "the claim of the ephemeral volume of pod %[1]d is created",
	claimIsCollected:        "the garbage collector deletes claim %[1]d",
	kubeletSees:             "the kubelet of pod %[1]d sees how it is",
	kubeletReportsEnd:       "the kubelet reports that pod %[1]d has completed",
	containerStarts:         "the container of pod %[1]d starts",
	processesEnd:            "the kubelet ends the processes of pod %[1]d",
	podCompletes:            "pod %[1]d completes",
	volumeIsUnmounted:       "the kubelet unmounts the volumes of pod %[1]d",
	kubeletIsCutOff:         "the kubelet of node %[3]s is cut off",
	kubeletReturns:          "the kubelet of node %[3]s reaches the API server again",
	machineReboots:          "the machine of node %[3]s reboots",
	kubeletShowsBoot:        "the kubelet of node %[3]s writes the boot ID to the Node",
	nodeIsFenced:            "node %[3]s is fenced from the volumes",
	fencingListsPods:        "node fencing finds that node %[3]s has rebooted, and no pod terminating there that is held",
	nodeIsUnfenced:          "node %[3]s is unfenced",
	processStarts:           "replica %[2]d starts",
	processEnds:             "replica %[2]d ends",
	watchShowsNamespace:     "the watch of replica %[2]d shows the namespace",
	watchShowsFence:         "the watch of replica %[2]d shows the fence",
	watchShowsPod:           "the watch of replica %[2]d shows pod %[1]d",
	watchShowsClaim:         "the watch of replica %[2]d shows claim %[1]d",
	workerBegins:            "replica %[2]d works on pod %[1]d",
	workerBeginsLock:        "replica %[2]d works on the lock of claim %[1]d",
	unmountGraceEnds:        "replica %[2]d: the unmount grace of pod %[1]d is over",
	pauseEnds:               "replica %[2]d: the pause of what waits for the clock is over (%[1]d)",
	callLands:               "the write whose sender has given it up is carried out",
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	if m.verb < verbs {
		return fmt.Sprintf(sentences[m.verb]+"%[5]s", m.on, m.by, nodeName(m.on), nodeName(m.by), "")
	}
	base, how := callAnswered, "replica %d: %s for %s %d is answered"
	switch {
	case m.verb >= callIsLate:
		base, how = callIsLate, "replica %d: %s for %s %d is given up, and still under way"
	case m.verb >= answerLost:
		base, how = answerLost, "replica %d: the answer to %s for %s %d, which was done, is lost"
	case m.verb >= callFails:
		base, how = callFails, "replica %d: %s for %s %d fails"
	}
	calls := [...]string{"nothing", "GET of the namespace", "GET of a claim", "GET of the holder", "GET of the fence",
		"GET of the Node", "the list of pods", "the patch of the claim", "the patch of the gate"}
	call, what, on := "?", "pod", m.on
	if n := int(m.verb - base); n < len(calls) {
		call = calls[n]
	}
	if on >= locks {
		what, on = "the lock of claim", on-locks
	}
	return fmt.Sprintf(how, m.by, call, what, on)
}

// Story describes a history, with a sentence for each move.
func (w *World) Story(moves []search.Move) []string {
	var lines []string
	for _, m := range moves {
		lines = append(lines, w.describe(moveOf(m)))
	}
	return lines
}
