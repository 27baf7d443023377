package podsafety

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

type verb = search.Verb

// Moves by their sentences; %[1]d is the pod, %[2]d the replica, %[3]s the node in on, %[4]s the node in by.
const (
	userDeletesPod          verb = "a user deletes pod %[1]d"
	userForces              verb = "a user deletes pod %[1]d by force, which is confirmed"
	userForcesUnasked       verb = "a user deletes pod %[1]d by force, and is not asked for a confirmation"
	userConfirms            verb = "a user confirms the force deletion of pod %[1]d"
	userConfirmsOther       verb = "a user confirms the force deletion of another pod, on pod %[1]d"
	userWithdraws           verb = "a user withdraws the confirmation for pod %[1]d"
	userDeletesClaim        verb = "a user deletes the claim"
	userDeletesNode         verb = "a user deletes Node %[3]s"
	userTaints              verb = "an administrator taints node %[3]s as out of service"
	userUntaints            verb = "an administrator removes the taint from node %[3]s"
	nodeIsFenced            verb = "node %[3]s is fenced: its machine is off until it is unfenced"
	nodeIsRebooted          verb = "node %[3]s is fenced by a reboot"
	nodeIsUnfenced          verb = "node %[3]s is unfenced"
	fenceTaints             verb = "the fence taints node %[3]s as out of service"
	fenceUntaints           verb = "the fence removes its taint from node %[3]s"
	graceEnds               verb = "the grace period of pod %[1]d passes"
	machineStarts           verb = "the machine of node %[3]s starts"
	powerIsCut              verb = "the power of node %[3]s is cut"
	kubeletStarts           verb = "the kubelet of node %[3]s starts"
	kubeletEnds             verb = "the kubelet of node %[3]s ends, and its containers run on"
	kubeletRegisters        verb = "the kubelet of node %[3]s registers"
	kubeletRenews           verb = "the kubelet of node %[3]s creates its Lease"
	kubeletIsCutOff         verb = "the kubelet of node %[3]s is cut off"
	kubeletReturns          verb = "the kubelet of node %[3]s reaches the API server again"
	machineIsReplaced       verb = "another machine takes the name of node %[3]s"
	kubeletSees             verb = "the kubelet of pod %[1]d sees how it is"
	kubeletReports          verb = "the kubelet reports the containers of pod %[1]d"
	kubeletReportsEnd       verb = "the kubelet reports the end of pod %[1]d"
	kubeletReportsEndOfInit verb = "the kubelet reports the end of pod %[1]d, whose main container did not run"
	kubeletRefuses          verb = "the kubelet refuses pod %[1]d"
	kubeletFindsNothing     verb = "the kubelet reports that it finds no container of pod %[1]d"
	kubeletWritesNode       verb = "the kubelet of node %[3]s writes its machine and the time to its Node"
	kubeletDeletes          verb = "the kubelet deletes pod %[1]d"
	containerStarts         verb = "the container of pod %[1]d starts"
	containerEnds           verb = "the container of pod %[1]d ends, to be started again"
	processesEnd            verb = "the kubelet ends the processes of pod %[1]d"
	volumeIsUnmounted       verb = "the kubelet unmounts the volume of pod %[1]d"
	nodeReadyChanges        verb = "the condition Ready of node %[3]s follows"
	leaseIsCollected        verb = "the Lease of node %[3]s is removed"
	replacementIsCreated    verb = "the StatefulSet controller creates pod %[1]d"
	podIsBound              verb = "pod %[1]d is bound to node %[4]s"
	collectorFailsPod       verb = "the pod garbage collector marks pod %[1]d Failed"
	collectorDeletesPod     verb = "the pod garbage collector deletes pod %[1]d by force"
	claimIsRemoved          verb = "PVC protection releases the claim, which is gone"
	claimIsCollected        verb = "the garbage collector deletes the claim of the pod that is gone"
	volumeIsDetached        verb = "the volume is detached from node %[3]s"
	volumeIsAttached        verb = "the volume is attached to node %[3]s"
	processStarts           verb = "replica %[2]d starts"
	processEnds             verb = "replica %[2]d ends"
	watchShowsPod           verb = "the watch of replica %[2]d shows pod %[1]d"
	watchShowsNode          verb = "the watch of replica %[2]d shows node %[3]s"
	watchShowsClaim         verb = "the watch of replica %[2]d shows the claim"
	workerBegins            verb = "replica %[2]d works on pod %[1]d"
	workerLocks             verb = "replica %[2]d works on the lock for pod %[1]d"
	workerSettlesClaim      verb = "replica %[2]d works on the claim"
	unmountGraceEnds        verb = "replica %[2]d: the unmount grace of pod %[1]d is over"
	forceGraceEnds          verb = "replica %[2]d: pod %[1]d has been without grace for the duration of a Lease"
	nodeIsReadAgain         verb = "replica %[2]d: it is time to read the node of pod %[1]d again"
	leaseGraceEnds          verb = "replica %[2]d: the Lease of the node of pod %[1]d has not changed for its duration"
)

// The outcomes of calls, by the actions.
var (
	actions      = search.Names(podsafety.RemoveFinalizerByUID)
	callAnswered = search.Verbs("replica %%[2]d: %s for pod %%[1]d is answered", actions)
	callFails    = search.Verbs("replica %%[2]d: %s for pod %%[1]d fails", actions)
	answerLost   = search.Verbs("replica %%[2]d: the answer to %s for pod %%[1]d, which was done, is lost", actions)
)

// move is one event: of a replica or a node, about a pod or a node.
type move struct {
	verb
	// by is the number of the acting replica, or of the node that a pod is bound to. on is the number of the pod or the
	// node.
	by, on int
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	return m.Sentence(m.on, m.by, nodeName(m.on), nodeName(m.by))
}
