package provision

import (
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// verb is what happens in a move.
type verb uint8

const (
	userDeletesClaim verb = iota
	userCreatesClaim
	userBindsElsewhere
	userDeletesPV
	userRetains
	userTakesName
	userDeletesClass
	userCreatesClass
	nodeGoes
	nodeReturns
	nodeIsSelected
	nodeALeaves
	nodeAReturns
	nodeIsDeselected
	schedulerSelects
	userDeletesSecret
	userCreatesSecret
	driverIsReplaced
	driverComesBack
	logFills
	logHasRoom
	adminStrips
	adminSettlesEntry
	adminDeletesLog
	peerReclaims
	protectionEnds
	controllerBinds
	retainedPVGoes
	reclaimBegins
	reclaimDeletesVolume
	reclaimEnds
	processStarts
	processEnds
	processLeads
	processNotices
	leaseMoves
	watchShowsClaim
	watchShowsPV
	watchReceivesClaim
	watchReceivesPV
	runEnds
	sends
	arrives
	fails
	timesOut
	learns
	rereads
	driverMakes
	driverHasAnother
	driverMakesUnfit
	driverCannot
	driverRejects
	driverWantsSecret
	driverRefuses
	driverIsFull
	driverFails
	driverIsAtWork
	lateArrives
	lateLost
	backOffEnds
	takesOver
	stalls
	quietPasses
	quietPassesBefore
	logIsRead
	verbs
)

// move is one thing that happens, to a claim, name or PersistentVolume, by a replica.
type move struct {
	verb            verb
	replica, target int
	// variant is the action of a call, or a node.
	variant uint8
}

func moveTo(v verb, replica, target int, variant uint8) move {
	return move{v, replica, target, variant}
}

func (m move) code() search.Move {
	return uint32(m.verb)<<16 | uint32(m.variant)<<8 | uint32(m.replica)<<4 | uint32(m.target)
}

func moveOf(code search.Move) move {
	return move{verb(code >> 16), int(code >> 4 & 15), int(code & 15), uint8(code >> 8)}
}

// sentences say what happens; %[1]s is the claim, %[2]d the replica, %[3]v the action and %[4]s a node.
var sentences = [verbs]string{
	userDeletesClaim:     "a user deletes claim %[1]s",
	userCreatesClaim:     "a user creates claim %[1]s",
	userBindsElsewhere:   "claim %[1]s is bound to another PV",
	userDeletesPV:        "a user deletes the PV of %[1]s",
	userRetains:          "a user turns the PV of %[1]s to Retain",
	userTakesName:        "a user creates a PV of another driver under the name of the PV of %[1]s",
	userDeletesClass:     "a user deletes the StorageClass",
	userCreatesClass:     "a user creates the StorageClass again, with other parameters",
	nodeGoes:             "the last node of the second zone goes",
	nodeReturns:          "the second zone has a node again",
	nodeIsSelected:       "node %[4]s is selected for claim %[1]s",
	nodeALeaves:          "node a goes",
	nodeAReturns:         "node a is there again",
	nodeIsDeselected:     "replica %[2]d has another node selected for claim %[1]s",
	schedulerSelects:     "the scheduler selects node %[4]s for claim %[1]s",
	userDeletesSecret:    "a user deletes the Secret of the class",
	userCreatesSecret:    "a user creates the Secret of the class again",
	driverIsReplaced:     "another version of the driver is installed",
	driverComesBack:      "the first version of the driver is installed again",
	logFills:             "entries of other names fill the log",
	logHasRoom:           "the log has room again",
	adminStrips:          "an administrator removes the finalizer of the PV of %[1]s",
	adminSettlesEntry:    "an administrator settles the entry of %[1]s",
	adminDeletesLog:      "an administrator deletes the log's Lease with the entry of %[1]s",
	peerReclaims:         "another provisioner deletes volume and PV of %[1]s without regard to the log",
	protectionEnds:       "PVC protection removes its finalizer from claim %[1]s",
	controllerBinds:      "the PV controller binds claim %[1]s to its PV",
	retainedPVGoes:       "the PV of %[1]s goes; its policy is Retain",
	reclaimBegins:        "reclaim begins for the PV of %[1]s",
	reclaimDeletesVolume: "reclaim deletes the volume of %[1]s",
	reclaimEnds:          "reclaim removes the PV of %[1]s",
	processStarts:        "replica %[2]d starts",
	processEnds:          "replica %[2]d ends",
	processLeads:         "replica %[2]d takes the lease",
	processNotices:       "replica %[2]d, which does not lead any more, starts anew",
	leaseMoves:           "replica %[2]d takes the lease while the other is paused",
	watchShowsClaim:      "the watch of replica %[2]d shows a change of claim %[1]s",
	watchShowsPV:         "the watch of replica %[2]d shows a change of the PV of %[1]s",
	watchReceivesClaim:   "the watch of replica %[2]d receives claim %[1]s as it is, and is slow to show it",
	watchReceivesPV:      "the watch of replica %[2]d receives the PV of %[1]s as it is, and is slow to show it",
	runEnds:              "replica %[2]d has nothing to do for claim %[1]s now",
	sends:                "replica %[2]d sends %[3]v for claim %[1]s",
	arrives:              "%[3]v of replica %[2]d for %[1]s arrives",
	fails:                "%[3]v of replica %[2]d for %[1]s fails",
	timesOut:             "%[3]v of replica %[2]d for %[1]s is not answered in time",
	learns:               "replica %[2]d gets the answer to %[3]v for %[1]s",
	rereads:              "replica %[2]d reads the log for its %[3]v for %[1]s",
	driverMakes:          "CreateVolume of replica %[2]d for %[1]s: OK",
	driverHasAnother:     "CreateVolume of replica %[2]d for %[1]s: AlreadyExists, as another request made the volume",
	driverMakesUnfit:     "CreateVolume of replica %[2]d for %[1]s makes another volume than was asked for",
	driverCannot:         "CreateVolume of replica %[2]d for %[1]s: InvalidArgument",
	driverRejects:        "CreateVolume of replica %[2]d for %[1]s: InvalidArgument, as another version is called",
	driverWantsSecret:    "CreateVolume of replica %[2]d for %[1]s: InvalidArgument, as it has no Secret",
	driverRefuses:        "CreateVolume of replica %[2]d for %[1]s is refused, unseen",
	driverIsFull:         "CreateVolume of replica %[2]d for %[1]s: ResourceExhausted, unseen",
	driverFails:          "CreateVolume of replica %[2]d for %[1]s: Internal, and nothing is made",
	driverIsAtWork:       "CreateVolume of replica %[2]d for %[1]s: Aborted, as an earlier call is at work",
	lateArrives:          "an earlier %[3]v of replica %[2]d for %[1]s arrives",
	lateLost:             "an earlier %[3]v of replica %[2]d for %[1]s is lost",
	backOffEnds:          "replica %[2]d tries again for %[1]s, after a while",
	takesOver:            "replica %[2]d takes over the log of %[1]s",
	stalls:               "replica %[2]d stalls after its read of the PV of %[1]s",
	quietPasses:          "replica %[2]d: no earlier call for %[1]s can arrive any more",
	quietPassesBefore:    "replica %[2]d counts on no earlier call for %[1]s, which is wrong",
	logIsRead:            "a read of replica %[2]d for another name shows a change of the log of %[1]s",
}

// say names a claim, a volume name, or a PersistentVolume.
func (w *World) say(i int) string {
	if i >= len(w.Claims) {
		return fmt.Sprintf("%s, stored apart by node %d", w.Claims[0], i-maxNames)
	}
	return fmt.Sprintf("%s (%d)", w.Claims[i], i+1)
}

func (w *World) tellMove(m move) string {
	node := "none"
	if int(m.variant) < len(nodes) && m.variant > 0 {
		node = nodes[m.variant]
	}
	action := provision.Action(m.variant).String()
	return strings.TrimSpace(fmt.Sprintf(sentences[m.verb]+"%[5]s", w.say(m.target), m.replica, action, node, ""))
}

// Story describes how something came about, a sentence for each move.
func (w *World) Story(moves []search.Move) []string {
	var lines []string
	for _, m := range moves {
		lines = append(lines, w.tellMove(moveOf(m)))
	}
	return lines
}
