//go:build model

package claims

import (
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// verb is what happens in a move. Those of calls are followed by the numbers of the actions.
type verb uint8

const (
	userDeletesClaim verb = iota
	userCreatesClaim
	userStrips
	userBindsElsewhere
	userDeletesPV
	userTakesName
	userDeletesClass
	userCreatesClass
	protectionLetsGo
	controllerBinds
	reclaimerDeletesVolume
	reclaimerDeletesPV
	foreignPVGoes
	processStarts
	processLeads
	processEnds
	processNotices
	processStalls
	leaseMoves
	watchTellsClaim
	watchTellsPV
	watchTellsClass
	workerBegins
	clockWakes
	librarySyncs
	libraryProvisions
	clockAsks
	delayEnds
	driverRefuses
	driverCannot
	driverMakesAnother
	lateCallArrives
	lateCallLost
	verbs

	callArrives    verb = 64
	callFails      verb = 72
	callAnswered   verb = 80
	answerLost     verb = 88
	driverIsAtWork verb = 96
)

// move is one thing that happens: to a claim, a replica, or both.
type move struct {
	verb           verb
	replica, claim int
}

func (m move) code() search.Move {
	return uint32(m.verb)<<8 | uint32(m.replica)<<4 | uint32(m.claim)
}

func moveOf(code search.Move) move {
	return move{verb(code >> 8), int(code >> 4 & 15), int(code & 15)}
}

// sentences say what happens; %[1]s is the claim, %[2]d the replica.
var sentences = [verbs]string{
	userDeletesClaim:       "a user deletes claim %[1]s",
	userCreatesClaim:       "a user creates claim %[1]s",
	userStrips:             "somebody takes our finalizer off claim %[1]s by hand",
	userBindsElsewhere:     "claim %[1]s is bound to another PV",
	userDeletesPV:          "a user deletes the PV of claim %[1]s",
	userTakesName:          "somebody creates a PV of another claim and volume, of the name that the PV of claim %[1]s gets",
	userDeletesClass:       "a user deletes the StorageClass",
	userCreatesClass:       "a user creates the StorageClass again",
	protectionLetsGo:       "PVC protection lets go of claim %[1]s",
	controllerBinds:        "the PV controller binds claim %[1]s to its PV",
	reclaimerDeletesVolume: "the volume of claim %[1]s, whose PV is released, is reclaimed",
	reclaimerDeletesPV:     "the PV of claim %[1]s, whose volume is deleted, is let go",
	foreignPVGoes:          "the other PV, of the name that the PV of claim %[1]s gets, is let go",
	processStarts:          "replica %[2]d starts",
	processLeads:           "replica %[2]d takes the lease",
	processEnds:            "replica %[2]d ends",
	processNotices:         "replica %[2]d notices that it leads no more, and ends",
	processStalls:          "replica %[2]d stalls for longer than its read of the PV of claim %[1]s counts",
	leaseMoves:             "replica %[2]d takes the lease, and the other has not noticed",
	watchTellsClaim:        "replica %[2]d is told of a change of claim %[1]s",
	watchTellsPV:           "replica %[2]d is told of a change of the PV of claim %[1]s",
	watchTellsClass:        "replica %[2]d is told of a change of the StorageClass",
	workerBegins:           "replica %[2]d: our loop looks at claim %[1]s",
	clockWakes:             "replica %[2]d: our loop looks at claim %[1]s again, after a while",
	librarySyncs:           "replica %[2]d: the library asks whether claim %[1]s is to be provisioned",
	libraryProvisions:      "replica %[2]d: the library has claim %[1]s provisioned",
	clockAsks:              "replica %[2]d: the library's delay for claim %[1]s is over",
	delayEnds:              "replica %[2]d: claim %[1]s may be tried again",
	driverRefuses:          "replica %[2]d: CreateVolume for claim %[1]s is refused, unseen",
	driverCannot:           "replica %[2]d: CreateVolume for claim %[1]s is judged and refused",
	driverMakesAnother:     "replica %[2]d: CreateVolume for claim %[1]s makes another volume than was asked for",
	lateCallArrives:        "a call for claim %[1]s arrives of a replica that has ended",
	lateCallLost:           "a call for claim %[1]s of a replica that has ended is lost",
}

// say names a claim: two of one name are told apart by their number.
func (w *World) say(claim int) string { return fmt.Sprintf("%s (%d)", w.Claims[claim], claim+1) }

// tellMove says in words what happens.
func (w *World) tellMove(m move) string {
	if m.verb < verbs {
		return strings.TrimSpace(fmt.Sprintf(sentences[m.verb]+"%[3]s", w.say(m.claim), m.replica, ""))
	}
	base, how := callArrives, "replica %d: %v for claim %s arrives"
	switch {
	case m.verb >= driverIsAtWork:
		base, how = driverIsAtWork, "replica %d: %v for claim %s is answered that the driver is at work on it"
	case m.verb >= answerLost:
		base, how = answerLost, "replica %d: the answer to %v for claim %s, which was done, is lost"
	case m.verb >= callAnswered:
		base, how = callAnswered, "replica %d: %v for claim %s is answered"
	case m.verb >= callFails:
		base, how = callFails, "replica %d: %v for claim %s fails"
	}
	return fmt.Sprintf(how, m.replica, provision.Action(m.verb-base), w.say(m.claim))
}

// Story tells in words how something came about, a sentence for each move.
func (w *World) Story(moves []search.Move) []string {
	var lines []string
	for _, m := range moves {
		lines = append(lines, w.tellMove(moveOf(m)))
	}
	return lines
}
