package intree

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

type verb = search.Verb

// Moves by their sentences; %[1]s is the PV, %[2]d the replica, %[3]s the claim.
const (
	userDeletesClaim           verb = "a user deletes claim %[3]s"
	userCreatesClaim           verb = "a user creates claim %[3]s"
	userRestoresClaim          verb = "a user restores claim %[3]s, which names its PV, from a backup"
	userDeletesPV              verb = "a user deletes PV %[1]s"
	userTurnsToRetain          verb = "a user turns PV %[1]s to Retain"
	userTurnsToDelete          verb = "a user turns PV %[1]s to Delete"
	userTakesBack              verb = "an administrator takes the claim's UID out of PV %[1]s"
	userHolds                  verb = "a user adds a hold to PV %[1]s"
	userLetsGo                 verb = "a user removes the hold from PV %[1]s"
	userStrips                 verb = "a user removes the finalizer from PV %[1]s"
	userDeletesTwin            verb = "a user deletes PV %[1]s"
	strangerProtects           verb = "another program adds the finalizer to PV %[1]s"
	migrationIsSwitched        verb = "migration is switched on or off for PV %[1]s"
	nodeDetaches               verb = "the volumes are detached"
	protectionRemovesFinalizer verb = "PV protection removes its finalizer from PV %[1]s"
	controllerLearns           verb = "the PV controller's cache of claims is up to date again"
	controllerManages          verb = "the PV controller changes the finalizers of PV %[1]s"
	controllerFrees            verb = "the PV controller marks PV %[1]s Available"
	controllerBinds            verb = "the PV controller marks PV %[1]s Bound"
	controllerGives            verb = "the PV controller gives PV %[1]s to the claim that has its name"
	controllerTellsClaim       verb = "the PV controller writes PV %[1]s to its claim"
	controllerUnbinds          verb = "the PV controller takes the claim away from PV %[1]s"
	controllerReleases         verb = "the PV controller marks PV %[1]s Released"
	controllerBegins           verb = "the PV controller begins to delete the volume of PV %[1]s"
	controllerRefrains         verb = "the PV controller finds nothing to delete for PV %[1]s"
	controllerDeletesPV        verb = "the PV controller deletes PV %[1]s"
	controllerEnds             verb = "the PV controller ends, and another begins"
	controllerIsReplaced       verb = "the PV controller is replaced by one from before or after 1.31"
	pluginDeletes              verb = "the plugin deletes the volume of PV %[1]s"
	pluginFails                verb = "the plugin fails for PV %[1]s, which is marked Failed"
	sidecarProtects            verb = "the CSI sidecar adds its finalizer to PV %[1]s"
	sidecarDeletes             verb = "the CSI sidecar deletes the volume of PV %[1]s"
	sidecarLetsGo              verb = "the CSI sidecar removes its finalizer from PV %[1]s"
	processStarts              verb = "replica %[2]d starts"
	processLeads               verb = "replica %[2]d takes the lease"
	processEnds                verb = "replica %[2]d ends"
	processNotices             verb = "replica %[2]d notices that it leads no more, and ends"
	processStalls              verb = "replica %[2]d stalls for longer than its reads for PV %[1]s count"
	leaseMoves                 verb = "replica %[2]d takes the lease, and the other has not noticed"
	watchDelivers              verb = "replica %[2]d sees a change of PV %[1]s"
	workerBegins               verb = "replica %[2]d works on PV %[1]s"
	clockWakes                 verb = "replica %[2]d works on PV %[1]s again, after a while"
	delayEnds                  verb = "replica %[2]d: the delay for PV %[1]s is over"
	lateCallArrives            verb = "a call for PV %[1]s arrives of a replica that has ended"
	lateCallLost               verb = "a call for PV %[1]s of a replica that has ended is lost"
)

// The outcomes of calls, by their actions.
var (
	actions      = search.Names(intree.RemoveFinalizerByUID)
	callArrives  = search.Verbs("replica %%[2]d: %s for PV %%[1]s arrives", actions)
	callFails    = search.Verbs("replica %%[2]d: %s for PV %%[1]s fails", actions)
	callAnswered = search.Verbs("replica %%[2]d: %s for PV %%[1]s is answered", actions)
	answerLost   = search.Verbs("replica %%[2]d: the answer to %s for PV %%[1]s, which was done, is lost", actions)
)

// move is one thing that happens: to a PV or a claim, a replica, or both.
type move struct {
	verb
	// replica is the one that does it, slot the PV's, or the claim's number.
	replica, slot int
}

// say names a PV: its twin has a name of its own.
func (w *World) say(slot int) string {
	name := w.PVs[slot/2].Name
	if isTwin(slot) {
		return volume.TwinName(name)
	}
	return name
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	claim := ""
	if m.slot < len(w.Claims) {
		claim = fmt.Sprintf("%s (%d)", w.Claims[m.slot], m.slot+1)
	}
	return m.Sentence(w.say(m.slot), m.replica, claim)
}
