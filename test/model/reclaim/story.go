package reclaim

import (
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// verb is what happens in a move. Those of calls are followed by the numbers of the actions.
type verb uint8

const (
	userDeletesPV verb = iota
	userDeletesClaim
	userRecreatesClaim
	userRestoresClaim
	userBindsAgain
	userTurnsPolicy
	userStrips
	userTakesBack
	userCreatesPV
	userHolds
	podAttaches
	podDetaches
	controllerSeesClaim
	controllerReleases
	controllerMisjudges
	controllerBinds
	controllerMakesAvailable
	controllerClaims
	controllerCompletes
	protectionRemovesFinalizer
	attacherMarks
	attacherRemovesFinalizer
	peerStrips
	peerDeletesVolume
	peerDeletesPV
	processStarts
	processLeads
	processEnds
	processNotices
	processStalls
	leaseMoves
	leaseExpires
	watchDelivers
	watchDeliversAttachment
	watchStartsAnew
	watchDeliversClaim
	claimEndAges
	claimWatchStartsAnew
	workerBegins
	clockWakes
	protectionBegins
	lateCallArrives
	lateCallLost

	readAnswered verb = 64
	readFails    verb = 96
	callArrives  verb = 128
	callFails    verb = 160
	callAnswered verb = 192
	answerLost   verb = 224
)

// move is one thing that happens: to a PV, a replica, or both.
type move struct {
	verb          verb
	replica, slot int
}

func (m move) code() uint32 { return uint32(m.verb)<<8 | uint32(m.replica)<<4 | uint32(m.slot) }

func moveOf(code uint32) move {
	return move{verb(code >> 8), int(code >> 4 & 15), int(code & 15)}
}

// sentences say what happens; %[1]s is the PV, %[2]s its claim, %[3]d the replica.
var sentences = map[verb]string{
	userDeletesPV:              "a user deletes PV %[1]s",
	userDeletesClaim:           "a user deletes claim %[2]s",
	userRecreatesClaim:         "a user creates claim %[2]s again",
	userRestoresClaim:          "a user restores claim %[2]s, which names PV %[1]s, from a backup",
	userBindsAgain:             "a user writes the UID of claim %[2]s into the claimRef of PV %[1]s",
	userTurnsPolicy:            "a user turns the reclaim policy of PV %[1]s",
	userStrips:                 "a user removes our finalizer from PV %[1]s",
	userTakesBack:              "a user clears the claim's UID on PV %[1]s, to take the volume back",
	userCreatesPV:              "a user creates a PV %[1]s",
	userHolds:                  "a user puts PV %[1]s on hold, or ends that",
	podAttaches:                "a pod has PV %[1]s attached",
	podDetaches:                "PV %[1]s is detached",
	controllerSeesClaim:        "the PV controller sees what became of claim %[2]s",
	controllerReleases:         "the PV controller sets PV %[1]s to Released",
	controllerMisjudges:        "the PV controller sets PV %[1]s to Released although its claim lives",
	controllerBinds:            "the PV controller sets PV %[1]s to Bound",
	controllerMakesAvailable:   "the PV controller sets PV %[1]s to Available",
	controllerClaims:           "the PV controller names claim %[2]s in PV %[1]s",
	controllerCompletes:        "the PV controller binds claim %[2]s to PV %[1]s",
	protectionRemovesFinalizer: "PV protection removes its finalizer from PV %[1]s",
	attacherMarks:              "the attacher adds its finalizer to PV %[1]s",
	attacherRemovesFinalizer:   "the attacher removes its finalizer from PV %[1]s",
	peerStrips:                 "the provisioner beside removes the owner's finalizer from PV %[1]s",
	peerDeletesVolume:          "the provisioner beside deletes the volume of PV %[1]s",
	peerDeletesPV:              "the provisioner beside deletes PV %[1]s",
	processStarts:              "replica %[3]d starts",
	processLeads:               "replica %[3]d takes the lease",
	processEnds:                "replica %[3]d ends",
	processNotices:             "replica %[3]d notices that it leads no more, and ends",
	processStalls:              "replica %[3]d stalls for longer than its reads of PV %[1]s count",
	leaseMoves:                 "replica %[3]d takes the lease, and the other has not noticed",
	leaseExpires: "replica %[3]d takes the lease, which ran out while the other was paused; " +
		"that one continues",
	watchDelivers:           "replica %[3]d sees a change of PV %[1]s",
	watchDeliversAttachment: "replica %[3]d sees an attachment of PV %[1]s, or of its end",
	watchStartsAnew:         "replica %[3]d loses its watch of PVs and starts it anew",
	claimEndAges:            "replica %[3]d has seen the end of claim %[2]s for longer than that counts",
	watchDeliversClaim:      "replica %[3]d sees a change of claim %[2]s",
	claimWatchStartsAnew:    "replica %[3]d loses its watch of claims and starts it anew",
	workerBegins:            "replica %[3]d reconciles PV %[1]s",
	clockWakes:              "replica %[3]d reconciles PV %[1]s again, after a while",
	protectionBegins:        "replica %[3]d has room to protect PV %[1]s",
	lateCallArrives:         "a call about PV %[1]s arrives of a replica that has ended",
	lateCallLost:            "a call about PV %[1]s of a replica that has ended is lost",
}

// tellMove says in words what happens.
func (w *World) tellMove(m move) string {
	def := w.PVs[m.slot]
	if sentence, found := sentences[m.verb]; found {
		return strings.TrimSpace(fmt.Sprintf(sentence+"%[4]s", def.Name, def.claimName(), m.replica, ""))
	}
	base, how := readAnswered, "replica %d: %v of PV %s is answered"
	switch {
	case m.verb >= answerLost:
		base, how = answerLost, "replica %d: the answer to %v of PV %s, which was done, is lost"
	case m.verb >= callAnswered:
		base, how = callAnswered, "replica %d: %v of PV %s is answered"
	case m.verb >= callFails:
		base, how = callFails, "replica %d: %v of PV %s fails"
	case m.verb >= callArrives:
		base, how = callArrives, "replica %d: %v of PV %s arrives"
	case m.verb >= readFails:
		base, how = readFails, "replica %d: %v of PV %s fails"
	}
	return fmt.Sprintf(how, m.replica, reclaim.Action(m.verb-base), def.Name)
}

// Story describes how something came about, a sentence for each move.
func (w *World) Story(moves []search.Move) []string {
	var lines []string
	for _, m := range movesOf(moves) {
		lines = append(lines, w.tellMove(m))
	}
	return lines
}

func movesOf(codes []search.Move) (moves []move) {
	for _, code := range codes {
		moves = append(moves, moveOf(code))
	}
	return moves
}
