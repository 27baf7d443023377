package statefulset

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

type verb = search.Verb

// Moves by their sentences; %[1]d is on, %[2]d is by, %[3]s the policy in by, %[4]s the way to delete a set in by,
// %[5]s the name of the set in on, %[6]s the name in by, %[7]s the pod in on.
const (
	userScales                 verb = "a user scales set %[1]d to %[2]d"
	userMovesStart             verb = "a user moves the first ordinal of set %[1]d to 1"
	userTurnsField             verb = "a user turns the field of set %[1]d to %[3]s"
	userTurnsAnnotation        verb = "a user turns the annotation of set %[1]d to %[3]s"
	userDeletesSet             verb = "a user deletes set %[1]d, %[4]s"
	userCreatesSet             verb = "a user creates the set again, as set %[1]d"
	userDeletesPod             verb = "a user deletes pod %[6]s-%[1]d"
	userHolds                  verb = "a user adds the hold to claim %[1]d"
	userEndsHold               verb = "a user removes the hold from claim %[1]d"
	userDeletesClaim           verb = "a user deletes claim %[1]d"
	userRestoresClaim          verb = "a user restores claim %[1]d from a backup, with its annotations"
	userRemovesMark            verb = "a user removes the mark from claim %[1]d"
	userRemovesReferences      verb = "a user removes set and pod from the owners of claim %[1]d"
	userUninstalls             verb = "volume-guard is started with --release-finalizers"
	foreignOwnerIsDeleted      verb = "the other owner is deleted"
	gateIsSwitched             verb = "the feature gate is switched, and kube-controller-manager starts again"
	managerSeesSet             verb = "the StatefulSet controller sees set %[5]s"
	managerSeesPod             verb = "the StatefulSet controller sees pod %[6]s-%[1]d"
	managerSeesClaim           verb = "the StatefulSet controller sees claim %[1]d"
	managerSyncs               verb = "the StatefulSet controller syncs set %[5]s"
	managerSyncsAgain          verb = "the StatefulSet controller syncs set %[5]s after an event that changes nothing"
	managerRestarts            verb = "kube-controller-manager starts again"
	podIsBound                 verb = "pod %[6]s-%[1]d is bound to a node"
	podIsBoundLate             verb = "the scheduler does not know yet that claim %[1]d goes, and binds pod %[6]s-%[1]d"
	kubeletStarts              verb = "the kubelet starts pod %[6]s-%[1]d"
	kubeletEnds                verb = "the kubelet ends pod %[6]s-%[1]d, which is gone"
	collectorDeletesPod        verb = "the garbage collector deletes pod %[6]s-%[1]d"
	collectorDeletesClaim      verb = "the garbage collector deletes claim %[1]d"
	collectorRemovesReferences verb = "the garbage collector removes owners that are gone from claim %[1]d"
	collectorOrphans           verb = "the garbage collector removes set %[1]d from the owners of its dependents"
	setIsRemoved               verb = "set %[1]d is gone"
	claimIsRemoved             verb = "PVC protection releases claim %[1]d, which is gone"
	processStarts              verb = "replica %[2]d starts"
	processEnds                verb = "replica %[2]d ends"
	watchShowsSet              verb = "the watch of replica %[2]d shows set %[5]s"
	watchShowsPod              verb = "the watch of replica %[2]d shows pod %[7]s"
	watchShowsClaim            verb = "the watch of replica %[2]d shows claim %[1]d"
	workerBegins               verb = "replica %[2]d works on claim %[1]d"
	workerBeginsSet            verb = "replica %[2]d works on set %[5]s"
	setCallFails               verb = "replica %[2]d works on set %[5]s, and its call fails"
	graceEnds                  verb = "replica %[2]d: the grace period of claim %[1]d has passed"
	quietEnds                  verb = "replica %[2]d: nothing has happened to set %[5]s for long enough"
	lateCallArrives            verb = "the late call for claim %[1]d arrives"
	lateCallIsLost             verb = "the late call for claim %[1]d never arrives"
)

// The outcomes of calls, by their actions.
var (
	actions      = search.Names(statefulset.DeletePod)
	callAnswered = search.Verbs("replica %%[2]d: %s of claim %%[1]d is answered", actions)
	callFails    = search.Verbs("replica %%[2]d: %s of claim %%[1]d fails", actions)
	answerLost   = search.Verbs("replica %%[2]d: the answer to %s of claim %%[1]d, which was done, is lost", actions)
	callIsLate   = search.Verbs("replica %%[2]d ends after it has sent %s of claim %%[1]d, which is late", actions)
)

// move is one event: by is the number of a replica, the name of a set, a number or a word, and on is an ordinal, or the
// number of a set or its name.
type move struct {
	verb
	by, on int
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	return m.Sentence(m.on, m.by, policy(m.by), cascade(m.by), w.setName(m.on%maxSets),
		w.setName(m.by%maxSets), w.podName(m.on/maxOrdinals%maxSets, m.on%maxOrdinals))
}

// String returns the policy in words.
func (p policy) String() string {
	return word(p, "none", "Retain", "whenScaled Delete", "whenDeleted Delete", "Delete", "not valid")
}

// String returns the way in words.
func (c cascade) String() string {
	return word(c, "", "in the background", "in the foreground", "without its dependents")
}

func word[N ~uint8](n N, words ...string) string {
	if int(n) < len(words) {
		return words[n]
	}
	return "?"
}
