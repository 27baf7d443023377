package provision

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

type verb = search.Verb

// Moves by their sentences; %[1]s is the claim, %[2]d the replica, %[3]v the action and %[4]s a node.
const (
	userDeletesClaim     verb = "a user deletes claim %[1]s"
	userCreatesClaim     verb = "a user creates claim %[1]s"
	userBindsElsewhere   verb = "claim %[1]s is bound to another PV"
	userDeletesPV        verb = "a user deletes the PV of %[1]s"
	userRetains          verb = "a user turns the PV of %[1]s to Retain"
	userTakesName        verb = "a user creates a PV of another driver under the name of the PV of %[1]s"
	userDeletesClass     verb = "a user deletes the StorageClass"
	userCreatesClass     verb = "a user creates the StorageClass again, with other parameters"
	nodeGoes             verb = "the last node of the second zone goes"
	nodeReturns          verb = "the second zone has a node again"
	nodeIsSelected       verb = "node %[4]s is selected for claim %[1]s"
	nodeALeaves          verb = "node a goes"
	nodeAReturns         verb = "node a is there again"
	nodeIsDeselected     verb = "replica %[2]d has another node selected for claim %[1]s"
	schedulerSelects     verb = "the scheduler selects node %[4]s for claim %[1]s"
	userDeletesSecret    verb = "a user deletes the Secret of the class"
	userCreatesSecret    verb = "a user creates the Secret of the class again"
	driverIsReplaced     verb = "another version of the driver is installed"
	driverComesBack      verb = "the first version of the driver is installed again"
	logFills             verb = "entries of other names fill the log"
	logHasRoom           verb = "the log has room again"
	adminStrips          verb = "an administrator removes the finalizer of the PV of %[1]s"
	adminSettlesEntry    verb = "an administrator settles the entry of %[1]s"
	adminDeletesLog      verb = "an administrator deletes the log's Lease with the entry of %[1]s"
	peerReclaims         verb = "another provisioner deletes volume and PV of %[1]s without regard to the log"
	protectionEnds       verb = "PVC protection removes its finalizer from claim %[1]s"
	controllerBinds      verb = "the PV controller binds claim %[1]s to its PV"
	retainedPVGoes       verb = "the PV of %[1]s goes; its policy is Retain"
	reclaimBegins        verb = "reclaim begins for the PV of %[1]s"
	reclaimDeletesVolume verb = "reclaim deletes the volume of %[1]s"
	reclaimEnds          verb = "reclaim removes the PV of %[1]s"
	processStarts        verb = "replica %[2]d starts"
	processEnds          verb = "replica %[2]d ends"
	processLeads         verb = "replica %[2]d takes the lease"
	processNotices       verb = "replica %[2]d, which does not lead any more, starts anew"
	leaseMoves           verb = "replica %[2]d takes the lease while the other is paused"
	watchShowsClaim      verb = "the watch of replica %[2]d shows a change of claim %[1]s"
	watchShowsPV         verb = "the watch of replica %[2]d shows a change of the PV of %[1]s"
	watchReceivesClaim   verb = "the watch of replica %[2]d receives claim %[1]s as it is, and is slow to show it"
	watchReceivesPV      verb = "the watch of replica %[2]d receives the PV of %[1]s as it is, and is slow to show it"
	runEnds              verb = "replica %[2]d has nothing to do for claim %[1]s now"
	sends                verb = "replica %[2]d sends %[3]v for claim %[1]s"
	arrives              verb = "%[3]v of replica %[2]d for %[1]s arrives"
	fails                verb = "%[3]v of replica %[2]d for %[1]s fails"
	timesOut             verb = "%[3]v of replica %[2]d for %[1]s is not answered in time"
	learns               verb = "replica %[2]d gets the answer to %[3]v for %[1]s"
	rereads              verb = "replica %[2]d reads the log for its %[3]v for %[1]s"
	driverMakes          verb = "CreateVolume of replica %[2]d for %[1]s: OK"
	driverHasAnother     verb = "CreateVolume of replica %[2]d for %[1]s: AlreadyExists, by another request"
	driverMakesUnfit     verb = "CreateVolume of replica %[2]d for %[1]s makes another volume than was asked for"
	driverCannot         verb = "CreateVolume of replica %[2]d for %[1]s: InvalidArgument"
	driverRejects        verb = "CreateVolume of replica %[2]d for %[1]s: InvalidArgument, as another version is called"
	driverWantsSecret    verb = "CreateVolume of replica %[2]d for %[1]s: InvalidArgument, as it has no Secret"
	driverRefuses        verb = "CreateVolume of replica %[2]d for %[1]s is refused, unseen"
	driverIsFull         verb = "CreateVolume of replica %[2]d for %[1]s: ResourceExhausted, unseen"
	driverFails          verb = "CreateVolume of replica %[2]d for %[1]s: Internal, and nothing is made"
	driverIsAtWork       verb = "CreateVolume of replica %[2]d for %[1]s: Aborted, as an earlier call is at work"
	lateArrives          verb = "an earlier %[3]v of replica %[2]d for %[1]s arrives"
	lateLost             verb = "an earlier %[3]v of replica %[2]d for %[1]s is lost"
	backOffEnds          verb = "replica %[2]d tries again for %[1]s, after a while"
	takesOver            verb = "replica %[2]d takes over the log of %[1]s"
	stalls               verb = "replica %[2]d stalls after its read of the PV of %[1]s"
	quietPasses          verb = "replica %[2]d: no earlier call for %[1]s can arrive any more"
	quietPassesBefore    verb = "replica %[2]d counts on no earlier call for %[1]s, which is wrong"
	logIsRead            verb = "a read of replica %[2]d for another name shows a change of the log of %[1]s"
)

// move is one thing that happens, to a claim, name or PersistentVolume, by a replica.
type move struct {
	verb
	replica, target int
	// variant is the action of a call, or a node.
	variant uint8
}

func moveTo(v verb, replica, target int, variant uint8) move {
	return move{v, replica, target, variant}
}

// say names a claim, a volume name, or a PersistentVolume.
func (w *World) say(i int) string {
	if i >= len(w.Claims) {
		return fmt.Sprintf("%s, stored apart by node %d", w.Claims[0], i-maxNames)
	}
	return fmt.Sprintf("%s (%d)", w.Claims[i], i+1)
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	node := "none"
	if int(m.variant) < len(nodes) && m.variant > 0 {
		node = nodes[m.variant]
	}
	return m.Sentence(w.say(m.target), m.replica, provision.Action(m.variant), node)
}
