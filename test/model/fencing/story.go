package fencing

import (
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// verb is the kind of a move. The numbers of calls are added to the verbs of calls.
type verb uint8

const (
	nodeFenceIsCreated verb = iota
	userDeletesPod
	userPowersOff
	userPowersOn
	userDeletesNode
	userConfirms
	userConfirmsFalsely
	nodeFenceIsRestored
	userUnfences
	userAbandons
	userDeletesFence
	userTaints
	machineStarts
	kubeletRegisters
	kubeletRenews
	kubeletIsCutOff
	kubeletReturns
	kubeletSees
	powerIsCut
	machineIsReplaced
	nodeReadyChanges
	lateRenewal
	lateStatus
	lateIsLost
	leaseIsCollected
	containerStarts
	processesEnd
	podIsFinished
	podIsEvicted
	podIsCollected
	volumeIsDetached
	holderReadsFence
	holderReadsNode
	holderReleases
	holderBeginsAnew
	lockerReadsFence
	volumeIsLent
	agentActs
	agentSucceeds
	agentFails
	agentLies
	agentHangs
	agentEnds
	agentIsEndless
	objectVanishes
	retryPauseEnds
	chainPauseEnds
	timeLimitEnds
	undoTimeEnds
	keptLongEnough
	processStarts
	processEnds
	watchShowsFence
	watchShowsNode
	workerBegins
	pollBegins
	leaseGraceEnds
	runsGraceEnds
	verbs

	callAnswered verb = 64
	callFails    verb = 80
	answerLost   verb = 96
	noVerb       verb = 112
)

// move is one event: of a replica or an agent, about a pod or an attempt.
type move struct {
	verb verb
	// by is the number of the acting replica, or 1 for an agent that undoes. on is the number of the pod or of the attempt
	// from 0.
	by, on int
}

func (m move) code() search.Move { return uint32(m.verb)<<8 | uint32(m.by)<<4 | uint32(m.on) }

func moveOf(code search.Move) move { return move{verb(code >> 8), int(code >> 4 & 15), int(code & 15)} }

// sentences describe the moves; %[1]d is the pod, %[2]d the replica, %[3]s the agent.
var sentences = [verbs]string{
	nodeFenceIsCreated:  "a NodeFence is created",
	userDeletesPod:      "a user deletes pod %[1]d",
	userPowersOff:       "a person powers the machine off",
	userPowersOn:        "a person powers the machine on",
	userDeletesNode:     "a user deletes the Node",
	userConfirms:        "the person who has powered the machine off confirms that",
	nodeFenceIsRestored: "a NodeFence is restored from a backup, with a person's word about another one",
	userConfirmsFalsely: "a person confirms what is not so",
	userUnfences:        "a person ends the fence",
	userAbandons:        "a person abandons the fence",
	userDeletesFence:    "a user deletes the NodeFence",
	userTaints:          "a person adds or removes the taint that keeps new pods away",
	machineStarts:       "the machine starts",
	kubeletRegisters:    "the kubelet writes its boot ID",
	kubeletRenews:       "the kubelet renews its Lease",
	kubeletIsCutOff:     "the kubelet is cut off",
	kubeletReturns:      "the kubelet reaches the API server again",
	kubeletSees:         "the kubelet sees how pod %[1]d is",
	powerIsCut:          "the power of the machine is cut",
	machineIsReplaced:   "another machine takes the name of the node, whose machine runs on",
	nodeReadyChanges:    "the condition Ready follows",
	lateRenewal:         "a renewal of the Lease that was under way is carried out",
	lateStatus:          "a status of the Node that was under way is carried out",
	lateIsLost:          "a request that was under way is lost",
	leaseIsCollected:    "the Lease is removed",
	containerStarts:     "the container of pod %[1]d starts",
	processesEnd:        "the kubelet ends the processes of pod %[1]d",
	podIsFinished:       "the kubelet reports the end of pod %[1]d, which is gone",
	podIsEvicted:        "pod %[1]d is deleted for the taint",
	podIsCollected:      "the pod garbage collector marks pod %[1]d Failed",
	volumeIsDetached:    "the volume of pod %[1]d is detached",
	holderReadsFence:    "the NodeFence is read for pod %[1]d",
	holderReadsNode:     "the Node is read for pod %[1]d",
	holderReleases:      "pod %[1]d is released, for it is fenced",
	holderBeginsAnew:    "the evidence for pod %[1]d is too old",
	lockerReadsFence:    "the NodeFence is read for the volume of pod %[1]d",
	volumeIsLent:        "the volume of pod %[1]d is given to a pod on another node, for it is fenced",
	agentActs:           "%[3]s does what it is for",
	agentSucceeds:       "%[3]s succeeds",
	agentFails:          "%[3]s fails",
	agentLies:           "%[3]s succeeds, and has done nothing",
	agentHangs:          "%[3]s hangs",
	agentEnds:           "%[3]s, which was stopped, ends",
	agentIsEndless:      "%[3]s, which was stopped, does not end",
	objectVanishes:      "a user deletes the object of %[3]s",
	retryPauseEnds:      "the pause after the failure of %[3]s is over",
	chainPauseEnds:      "the pause after the last attempt is over",
	timeLimitEnds:       "the time of the attempt is over",
	undoTimeEnds:        "the time for the undoing is over",
	keptLongEnough:      "the NodeFence was kept long enough",
	processStarts:       "replica %[2]d starts",
	processEnds:         "replica %[2]d ends",
	watchShowsFence:     "the watch of replica %[2]d shows the NodeFence",
	watchShowsNode:      "the watch of replica %[2]d shows the Node",
	workerBegins:        "replica %[2]d works on the fence",
	pollBegins:          "replica %[2]d works on the fence after a pause",
	leaseGraceEnds:      "replica %[2]d: the Lease has not changed for its duration",
	runsGraceEnds:       "replica %[2]d: the node has run as before for the duration of a Lease",
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	if m.verb < verbs {
		agent := fmt.Sprintf("the agent of attempt %d", m.on+1)
		if m.by == 1 {
			agent = fmt.Sprintf("the agent that undoes attempt %d", m.on+1)
		}
		return strings.TrimSuffix(fmt.Sprintf(sentences[m.verb]+"%[4]s", m.on, m.by, agent, ""), " ")
	}
	base, how := callAnswered, "replica %d: %s is answered"
	switch {
	case m.verb >= answerLost:
		base, how = answerLost, "replica %d: the answer to %s, which was done, is lost"
	case m.verb >= callFails:
		base, how = callFails, "replica %d: %s fails"
	}
	return fmt.Sprintf(how, m.by, fencing.Action(m.verb-base))
}

// Story describes a history, with a sentence for each move.
func (w *World) Story(moves []search.Move) []string {
	var lines []string
	for _, m := range moves {
		lines = append(lines, w.describe(moveOf(m)))
	}
	return lines
}
