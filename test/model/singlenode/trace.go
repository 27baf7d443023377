package singlenode

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

type verb = search.Verb

// Moves by their sentences; %[1]d is the pod or claim, %[2]d the replica, %[3]s the node in on, %[4]s the node in by.
const (
	userCreatesPod          verb = "a user creates pod %[1]d"
	userPresetsNode         verb = "a user creates pod %[1]d without a gate, on node %[4]s"
	userDeletesPod          verb = "a user deletes pod %[1]d"
	userDeletesInForeground verb = "a user deletes pod %[1]d in the foreground: its object stays until its claim is gone"
	userForces              verb = "a user deletes pod %[1]d by force"
	userConfirms            verb = "a user confirms that the processes of pod %[1]d cannot run any more"
	userRemovesGate         verb = "a user removes the gate of pod %[1]d"
	queueAdmits             verb = "a queue removes its gate of pod %[1]d"
	userDeletesClaim        verb = "a user deletes claim %[1]d"
	userCreatesClaim        verb = "a user creates claim %[1]d again"
	userCreatesClaimFirst   verb = "a user creates claim %[1]d again, whose UID comes before those of the others"
	userLabelsClaim         verb = "a user adds the label to claim %[1]d"
	userRemovesLock         verb = "a user removes the lock of claim %[1]d"
	userDamagesLock         verb = "a user damages the lock of claim %[1]d"
	userRemovesFinalizer    verb = "a user removes the finalizer of claim %[1]d"
	userOptsIn              verb = "an administrator adds the label to the namespace"
	userOptsOut             verb = "an administrator removes the label from the namespace"
	guardIsUninstalled      verb = "volume-guard is uninstalled"
	replacementIsCreated    verb = "the controller of the set creates pod %[1]d"
	podIsBound              verb = "pod %[1]d is bound to node %[4]s"
	podIsReleased           verb = "the hold of pod %[1]d goes, and its object stays"
	podIsRemoved            verb = "pod %[1]d is gone"
	claimIsRemoved          verb = "claim %[1]d is gone"
	claimIsBound            verb = "claim %[1]d is bound to a PV"
	claimIsCreatedFor       verb = "the claim of the ephemeral volume of pod %[1]d is created"
	claimIsCollected        verb = "the garbage collector deletes claim %[1]d"
	kubeletSees             verb = "the kubelet of pod %[1]d sees how it is"
	kubeletReportsEnd       verb = "the kubelet reports that pod %[1]d has completed"
	containerStarts         verb = "the container of pod %[1]d starts"
	processesEnd            verb = "the kubelet ends the processes of pod %[1]d"
	podCompletes            verb = "pod %[1]d completes"
	volumeIsUnmounted       verb = "the kubelet unmounts the volumes of pod %[1]d"
	kubeletIsCutOff         verb = "the kubelet of node %[3]s is cut off"
	kubeletReturns          verb = "the kubelet of node %[3]s reaches the API server again"
	machineReboots          verb = "the machine of node %[3]s reboots"
	kubeletShowsBoot        verb = "the kubelet of node %[3]s writes the boot ID to the Node"
	nodeIsFenced            verb = "node %[3]s is fenced from the volumes"
	fencingListsPods        verb = "node fencing finds that node %[3]s has rebooted, and lists no held terminating pod"
	nodeIsUnfenced          verb = "node %[3]s is unfenced"
	processStarts           verb = "replica %[2]d starts"
	processEnds             verb = "replica %[2]d ends"
	watchShowsNamespace     verb = "the watch of replica %[2]d shows the namespace"
	watchShowsFence         verb = "the watch of replica %[2]d shows the fence"
	watchShowsPod           verb = "the watch of replica %[2]d shows pod %[1]d"
	watchShowsClaim         verb = "the watch of replica %[2]d shows claim %[1]d"
	workerBegins            verb = "replica %[2]d works on pod %[1]d"
	workerBeginsLock        verb = "replica %[2]d works on the lock of claim %[1]d"
	unmountGraceEnds        verb = "replica %[2]d: the unmount grace of pod %[1]d is over"
	pauseEnds               verb = "replica %[2]d: the pause of what waits for the clock is over (%[1]d)"
	callLands               verb = "the write whose sender has given it up is carried out"
)

// The outcomes of calls, by the actions; %[5]s is the pod or the lock.
var (
	actions      = search.Names(singlenode.RemoveGate)
	callAnswered = search.Verbs("replica %%[2]d: %s for %%[5]s is answered", actions)
	callFails    = search.Verbs("replica %%[2]d: %s for %%[5]s fails", actions)
	answerLost   = search.Verbs("replica %%[2]d: the answer to %s for %%[5]s, which was done, is lost", actions)
	callIsLate   = search.Verbs("replica %%[2]d: %s for %%[5]s is given up, and still under way", actions)
)

// move is one event: of a replica or a node, about a pod, a claim or a node.
type move struct {
	verb
	// by is the number of the acting replica, or of the node that a pod is bound to. on is the number of the pod, the
	// claim or the node, and from locks on the number of a lock.
	by, on int
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	object := fmt.Sprintf("pod %d", m.on)
	if m.on >= locks {
		object = fmt.Sprintf("the lock of claim %d", m.on-locks)
	}
	return m.Sentence(m.on, m.by, nodeName(m.on), nodeName(m.by), object)
}
