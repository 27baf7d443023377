package intree

import (
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// verb is what happens in a move. Those of calls are followed by the numbers of the actions.
type verb uint8

const (
	userDeletesClaim verb = iota
	userCreatesClaim
	userRestoresClaim
	userDeletesPV
	userTurnsToRetain
	userTurnsToDelete
	userTakesBack
	userHolds
	userLetsGo
	userStrips
	userDeletesTwin
	strangerProtects
	migrationIsSwitched
	nodeDetaches
	protectionRemovesFinalizer
	controllerLearns
	controllerManages
	controllerFrees
	controllerBinds
	controllerGives
	controllerTellsClaim
	controllerUnbinds
	controllerReleases
	controllerBegins
	controllerRefrains
	controllerDeletesPV
	controllerEnds
	controllerIsReplaced
	pluginDeletes
	pluginFails
	sidecarProtects
	sidecarDeletes
	sidecarLetsGo
	processStarts
	processLeads
	processEnds
	processNotices
	processStalls
	leaseMoves
	watchDelivers
	workerBegins
	clockWakes
	delayEnds
	lateCallArrives
	lateCallLost
	verbs

	callArrives  verb = 64
	callFails    verb = 80
	callAnswered verb = 96
	answerLost   verb = 112
	noVerb       verb = 128
)

// move is one thing that happens: to a PV or a claim, a replica, or both.
type move struct {
	verb verb
	// replica is the one that does it, slot the PV's, or the claim's number.
	replica, slot int
}

func (m move) code() search.Move {
	return uint32(m.verb)<<8 | uint32(m.replica)<<4 | uint32(m.slot)
}

func moveOf(code search.Move) move {
	return move{verb(code >> 8), int(code >> 4 & 15), int(code & 15)}
}

// sentences say what happens; %[1]s is the PV, %[2]d the replica, %[3]s the claim.
var sentences = [verbs]string{
	userDeletesClaim:           "a user deletes claim %[3]s",
	userCreatesClaim:           "a user creates claim %[3]s",
	userRestoresClaim:          "a user restores claim %[3]s, which names its PV, from a backup",
	userDeletesPV:              "a user deletes PV %[1]s",
	userTurnsToRetain:          "a user turns PV %[1]s to Retain",
	userTurnsToDelete:          "a user turns PV %[1]s to Delete",
	userTakesBack:              "an administrator takes the claim's UID out of PV %[1]s",
	userHolds:                  "a user adds a hold to PV %[1]s",
	userLetsGo:                 "a user removes the hold from PV %[1]s",
	userStrips:                 "a user removes the finalizer from PV %[1]s",
	userDeletesTwin:            "a user deletes PV %[1]s",
	strangerProtects:           "another program adds the finalizer to PV %[1]s",
	migrationIsSwitched:        "migration is switched on or off for PV %[1]s",
	nodeDetaches:               "the volumes are detached",
	protectionRemovesFinalizer: "PV protection removes its finalizer from PV %[1]s",
	controllerLearns:           "the PV controller's cache of claims is up to date again",
	controllerManages:          "the PV controller changes the finalizers of PV %[1]s",
	controllerFrees:            "the PV controller marks PV %[1]s Available",
	controllerBinds:            "the PV controller marks PV %[1]s Bound",
	controllerGives:            "the PV controller gives PV %[1]s to the claim that has its name",
	controllerTellsClaim:       "the PV controller writes PV %[1]s to its claim",
	controllerUnbinds:          "the PV controller takes the claim away from PV %[1]s",
	controllerReleases:         "the PV controller marks PV %[1]s Released",
	controllerBegins:           "the PV controller begins to delete the volume of PV %[1]s",
	controllerRefrains:         "the PV controller finds nothing to delete for PV %[1]s",
	controllerDeletesPV:        "the PV controller deletes PV %[1]s",
	controllerEnds:             "the PV controller ends, and another begins",
	controllerIsReplaced:       "the PV controller is replaced by one from before or after 1.31",
	pluginDeletes:              "the plugin deletes the volume of PV %[1]s",
	pluginFails:                "the plugin fails for PV %[1]s, which is marked Failed",
	sidecarProtects:            "the CSI sidecar adds its finalizer to PV %[1]s",
	sidecarDeletes:             "the CSI sidecar deletes the volume of PV %[1]s",
	sidecarLetsGo:              "the CSI sidecar removes its finalizer from PV %[1]s",
	processStarts:              "replica %[2]d starts",
	processLeads:               "replica %[2]d takes the lease",
	processEnds:                "replica %[2]d ends",
	processNotices:             "replica %[2]d notices that it leads no more, and ends",
	processStalls:              "replica %[2]d stalls for longer than its reads for PV %[1]s count",
	leaseMoves:                 "replica %[2]d takes the lease, and the other has not noticed",
	watchDelivers:              "replica %[2]d sees a change of PV %[1]s",
	workerBegins:               "replica %[2]d works on PV %[1]s",
	clockWakes:                 "replica %[2]d works on PV %[1]s again, after a while",
	delayEnds:                  "replica %[2]d: the delay for PV %[1]s is over",
	lateCallArrives:            "a call for PV %[1]s arrives of a replica that has ended",
	lateCallLost:               "a call for PV %[1]s of a replica that has ended is lost",
}

// say names a PV: its twin has a name of its own.
func (w *World) say(slot int) string {
	name := w.PVs[slot/2].Name
	if isTwin(slot) {
		return volume.TwinName(name)
	}
	return name
}

// describe says in words what happens.
func (w *World) describe(m move) string {
	if m.verb < verbs {
		claim := ""
		if m.slot < len(w.Claims) {
			claim = fmt.Sprintf("%s (%d)", w.Claims[m.slot], m.slot+1)
		}
		return strings.TrimSpace(fmt.Sprintf(sentences[m.verb]+"%[4]s", w.say(m.slot), m.replica, claim, ""))
	}
	base, how := callArrives, "replica %d: %v for PV %s arrives"
	switch {
	case m.verb >= answerLost:
		base, how = answerLost, "replica %d: the answer to %v for PV %s, which was done, is lost"
	case m.verb >= callAnswered:
		base, how = callAnswered, "replica %d: %v for PV %s is answered"
	case m.verb >= callFails:
		base, how = callFails, "replica %d: %v for PV %s fails"
	}
	return fmt.Sprintf(how, m.replica, intree.Action(m.verb-base), w.say(m.slot))
}

// Story says in words how something came about, a sentence for each move.
func (w *World) Story(moves []search.Move) []string {
	var lines []string
	for _, m := range moves {
		lines = append(lines, w.describe(moveOf(m)))
	}
	return lines
}
