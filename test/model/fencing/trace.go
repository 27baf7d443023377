package fencing

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

type verb = search.Verb

// Moves by their sentences; %[1]d is the pod, %[2]d the replica, %[3]s the agent.
const (
	nodeFenceIsCreated  verb = "a NodeFence is created"
	userDeletesPod      verb = "a user deletes pod %[1]d"
	userPowersOff       verb = "a person powers the machine off"
	userPowersOn        verb = "a person powers the machine on"
	userDeletesNode     verb = "a user deletes the Node"
	userConfirms        verb = "the person who has powered the machine off confirms that"
	userConfirmsFalsely verb = "a person confirms what is not so"
	nodeFenceIsRestored verb = "a NodeFence is restored from a backup, with a person's word about another one"
	userUnfences        verb = "a person ends the fence"
	userAbandons        verb = "a person abandons the fence"
	userDeletesFence    verb = "a user deletes the NodeFence"
	userTaints          verb = "a person adds or removes the taint that keeps new pods away"
	machineStarts       verb = "the machine starts"
	kubeletRegisters    verb = "the kubelet writes its boot ID"
	kubeletRenews       verb = "the kubelet renews its Lease"
	kubeletIsCutOff     verb = "the kubelet is cut off"
	kubeletReturns      verb = "the kubelet reaches the API server again"
	kubeletSees         verb = "the kubelet sees how pod %[1]d is"
	powerIsCut          verb = "the power of the machine is cut"
	machineIsReplaced   verb = "another machine takes the name of the node, whose machine runs on"
	nodeReadyChanges    verb = "the condition Ready follows"
	kubeletIsNotReady   verb = "the kubelet writes that it is not ready yet"
	lateRenewal         verb = "a renewal of the Lease that was under way is carried out"
	lateStatus          verb = "a status of the Node that was under way is carried out"
	lateIsLost          verb = "a request that was under way is lost"
	leaseIsCollected    verb = "the Lease is removed"
	containerStarts     verb = "the container of pod %[1]d starts"
	processesEnd        verb = "the kubelet ends the processes of pod %[1]d"
	podIsFinished       verb = "the kubelet reports the end of pod %[1]d, which is gone"
	podIsEvicted        verb = "pod %[1]d is deleted for the taint"
	podIsCollected      verb = "the pod garbage collector marks pod %[1]d Failed"
	volumeIsDetached    verb = "the volume of pod %[1]d is detached"
	holderReadsFence    verb = "the NodeFence is read for pod %[1]d"
	holderReadsNode     verb = "the Node is read for pod %[1]d"
	holderReleases      verb = "pod %[1]d is released, for it is fenced"
	holderBeginsAnew    verb = "the evidence for pod %[1]d is too old"
	lockerReadsFence    verb = "the NodeFence is read for the volume of pod %[1]d"
	volumeIsLent        verb = "the volume of pod %[1]d is given to a pod on another node, for it is fenced"
	agentActs           verb = "%[3]s does what it is for"
	agentSucceeds       verb = "%[3]s succeeds"
	agentFails          verb = "%[3]s fails"
	agentLies           verb = "%[3]s succeeds, and has done nothing"
	agentHangs          verb = "%[3]s hangs"
	agentEnds           verb = "%[3]s, which was stopped, ends"
	agentIsEndless      verb = "%[3]s, which was stopped, does not end"
	objectVanishes      verb = "a user deletes the object of %[3]s"
	retryPauseEnds      verb = "the pause after the failure of %[3]s is over"
	chainPauseEnds      verb = "the pause after the last attempt is over"
	timeLimitEnds       verb = "the time of the attempt is over"
	undoTimeEnds        verb = "the time for the undoing is over"
	keptLongEnough      verb = "the NodeFence was kept long enough"
	processStarts       verb = "replica %[2]d starts"
	processEnds         verb = "replica %[2]d ends"
	watchShowsFence     verb = "the watch of replica %[2]d shows the NodeFence"
	watchShowsNode      verb = "the watch of replica %[2]d shows the Node"
	workerBegins        verb = "replica %[2]d works on the fence"
	pollBegins          verb = "replica %[2]d works on the fence after a pause"
	leaseGraceEnds      verb = "replica %[2]d: the Lease has not changed for its duration"
	listTakesLong       verb = "replica %[2]d: a list is answered after the reads before it have grown old"
	listIsAwaited       verb = "replica %[2]d: no list of VolumeAttachments is made now"
	runsGraceEnds       verb = "replica %[2]d: the node has run as before for the duration of a Lease"
)

// The outcomes of calls, by their actions.
var (
	actions      = search.Names(fencing.RemoveTaint)
	callAnswered = search.Verbs("replica %%[2]d: %s is answered", actions)
	callFails    = search.Verbs("replica %%[2]d: %s fails", actions)
	answerLost   = search.Verbs("replica %%[2]d: the answer to %s, which was done, is lost", actions)
)

// move is one event: of a replica or an agent, about a pod or an attempt.
type move struct {
	verb
	// by is the number of the acting replica, or 1 for an agent that undoes. on is the number of the pod or of the attempt
	// from 0.
	by, on int
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	agent := fmt.Sprintf("the agent of attempt %d", m.on+1)
	if m.by == 1 {
		agent = fmt.Sprintf("the agent that undoes attempt %d", m.on+1)
	}
	return m.Sentence(m.on, m.by, agent)
}
