package statefulset

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// verb is the kind of a move. The numbers of calls are added to the verbs of calls.
type verb uint8

const (
	userScales verb = iota
	userMovesStart
	userTurnsField
	userTurnsAnnotation
	userDeletesSet
	userCreatesSet
	userDeletesPod
	userHolds
	userEndsHold
	userDeletesClaim
	userRestoresClaim
	userRemovesMark
	userRemovesReferences
	userUninstalls
	foreignOwnerIsDeleted
	gateIsSwitched
	managerSeesSet
	managerSeesPod
	managerSeesClaim
	managerSyncs
	managerSyncsAgain
	managerRestarts
	podIsBound
	podIsBoundLate
	kubeletStarts
	kubeletEnds
	collectorDeletesPod
	collectorDeletesClaim
	collectorRemovesReferences
	collectorOrphans
	setIsRemoved
	claimIsRemoved
	processStarts
	processEnds
	watchShowsSet
	watchShowsPod
	watchShowsClaim
	workerBegins
	workerBeginsSet
	setCallFails
	graceEnds
	quietEnds
	lateCallArrives
	lateCallIsLost
	verbs

	callAnswered verb = 64
	callFails    verb = 80
	answerLost   verb = 96
	callIsLate   verb = 112
	noVerb       verb = 128
)

// move is one event: by is the number of a replica, the name of a set, a number or a word, and on is an ordinal, or the
// number of a set or its name.
type move struct {
	verb   verb
	by, on int
}

func (m move) code() search.Move { return uint32(m.verb)<<8 | uint32(m.by)<<4 | uint32(m.on) }

func moveOf(code search.Move) move { return move{verb(code >> 8), int(code >> 4 & 15), int(code & 15)} }

// sentences describe the moves; %[1]d is on, %[2]d is by, %[3]s the policy in by, %[4]s the way to delete a set in by,
// %[5]s the name of the set in on, %[6]s the name in by, %[7]s the pod in on.
var sentences = [verbs]string{
	userScales:                 "a user scales set %[1]d to %[2]d",
	userMovesStart:             "a user moves the first ordinal of set %[1]d to 1",
	userTurnsField:             "a user turns the field of set %[1]d to %[3]s",
	userTurnsAnnotation:        "a user turns the annotation of set %[1]d to %[3]s",
	userDeletesSet:             "a user deletes set %[1]d, %[4]s",
	userCreatesSet:             "a user creates the set again, as set %[1]d",
	userDeletesPod:             "a user deletes pod %[6]s-%[1]d",
	userHolds:                  "a user adds the hold to claim %[1]d",
	userEndsHold:               "a user removes the hold from claim %[1]d",
	userDeletesClaim:           "a user deletes claim %[1]d",
	userRestoresClaim:          "a user restores claim %[1]d from a backup, with its annotations",
	userRemovesMark:            "a user removes the mark from claim %[1]d",
	userRemovesReferences:      "a user removes set and pod from the owners of claim %[1]d",
	userUninstalls:             "volume-guard is started with --release-finalizers",
	foreignOwnerIsDeleted:      "the other owner is deleted",
	gateIsSwitched:             "the feature gate is switched, and kube-controller-manager starts again",
	managerSeesSet:             "the StatefulSet controller sees set %[5]s",
	managerSeesPod:             "the StatefulSet controller sees pod %[6]s-%[1]d",
	managerSeesClaim:           "the StatefulSet controller sees claim %[1]d",
	managerSyncs:               "the StatefulSet controller syncs set %[5]s",
	managerSyncsAgain:          "the StatefulSet controller syncs set %[5]s after an event that changes nothing",
	managerRestarts:            "kube-controller-manager starts again",
	podIsBound:                 "pod %[6]s-%[1]d is bound to a node",
	podIsBoundLate:             "the scheduler does not know yet that claim %[1]d goes, and binds pod %[6]s-%[1]d",
	kubeletStarts:              "the kubelet starts pod %[6]s-%[1]d",
	kubeletEnds:                "the kubelet ends pod %[6]s-%[1]d, which is gone",
	collectorDeletesPod:        "the garbage collector deletes pod %[6]s-%[1]d",
	collectorDeletesClaim:      "the garbage collector deletes claim %[1]d",
	collectorRemovesReferences: "the garbage collector removes owners that are gone from claim %[1]d",
	collectorOrphans:           "the garbage collector removes set %[1]d from the owners of its dependents",
	setIsRemoved:               "set %[1]d is gone",
	claimIsRemoved:             "PVC protection releases claim %[1]d, which is gone",
	processStarts:              "replica %[2]d starts",
	processEnds:                "replica %[2]d ends",
	watchShowsSet:              "the watch of replica %[2]d shows set %[5]s",
	watchShowsPod:              "the watch of replica %[2]d shows pod %[7]s",
	watchShowsClaim:            "the watch of replica %[2]d shows claim %[1]d",
	workerBegins:               "replica %[2]d works on claim %[1]d",
	workerBeginsSet:            "replica %[2]d works on set %[5]s",
	setCallFails:               "replica %[2]d works on set %[5]s, and its call fails",
	graceEnds:                  "replica %[2]d: the grace period of claim %[1]d has passed",
	quietEnds:                  "replica %[2]d: nothing has happened to set %[5]s for long enough",
	lateCallArrives:            "the late call for claim %[1]d arrives",
	lateCallIsLost:             "the late call for claim %[1]d never arrives",
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	if m.verb < verbs {
		policies := []string{"none", "Retain", "whenScaled Delete", "whenDeleted Delete", "Delete", "what is not valid"}
		ways := []string{"", "in the background", "in the foreground", "without its dependents"}
		return fmt.Sprintf(sentences[m.verb]+"%[8]s", m.on, m.by, word(policies, m.by), word(ways, m.by),
			w.setName(m.on%maxSets), w.setName(m.by%maxSets), w.podName(m.on/maxOrdinals%maxSets, m.on%maxOrdinals), "")
	}
	base, how := callAnswered, "replica %d: %s of claim %d is answered"
	switch {
	case m.verb >= callIsLate:
		base, how = callIsLate, "replica %d ends after it has sent %s of claim %d, which is late"
	case m.verb >= answerLost:
		base, how = answerLost, "replica %d: the answer to %s of claim %d, which was done, is lost"
	case m.verb >= callFails:
		base, how = callFails, "replica %d: %s of claim %d fails"
	}
	return fmt.Sprintf(how, m.by, statefulset.Action(m.verb-base), m.on)
}

func word(words []string, n int) string {
	if n < len(words) {
		return words[n]
	}
	return "?"
}

// Story describes a history, with a sentence for each move.
func (w *World) Story(moves []search.Move) []string {
	var lines []string
	for _, m := range moves {
		lines = append(lines, w.describe(moveOf(m)))
	}
	return lines
}
