package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

type verb = search.Verb

// Moves by their sentences; %[1]s is the PV, %[2]s its claim, %[3]d the replica.
const (
	userDeletesPV              verb = "a user deletes PV %[1]s"
	userDeletesClaim           verb = "a user deletes claim %[2]s"
	userRecreatesClaim         verb = "a user creates claim %[2]s again"
	userRestoresClaim          verb = "a user restores claim %[2]s, which names PV %[1]s, from a backup"
	userBindsAgain             verb = "a user writes the UID of claim %[2]s into the claimRef of PV %[1]s"
	userTurnsPolicy            verb = "a user turns the reclaim policy of PV %[1]s"
	userStrips                 verb = "a user removes our finalizer from PV %[1]s"
	userTakesBack              verb = "a user clears the claim's UID on PV %[1]s, to take the volume back"
	userCreatesPV              verb = "a user creates a PV %[1]s"
	userHolds                  verb = "a user puts PV %[1]s on hold, or ends that"
	podAttaches                verb = "a pod has PV %[1]s attached"
	podDetaches                verb = "PV %[1]s is detached"
	controllerSeesClaim        verb = "the PV controller sees what became of claim %[2]s"
	controllerReleases         verb = "the PV controller sets PV %[1]s to Released"
	controllerMisjudges        verb = "the PV controller sets PV %[1]s to Released although its claim lives"
	controllerBinds            verb = "the PV controller sets PV %[1]s to Bound"
	controllerMakesAvailable   verb = "the PV controller sets PV %[1]s to Available"
	controllerClaims           verb = "the PV controller names claim %[2]s in PV %[1]s"
	controllerCompletes        verb = "the PV controller binds claim %[2]s to PV %[1]s"
	protectionRemovesFinalizer verb = "PV protection removes its finalizer from PV %[1]s"
	attacherMarks              verb = "the attacher adds its finalizer to PV %[1]s"
	attacherRemovesFinalizer   verb = "the attacher removes its finalizer from PV %[1]s"
	peerStrips                 verb = "the provisioner beside removes the owner's finalizer from PV %[1]s"
	peerDeletesVolume          verb = "the provisioner beside deletes the volume of PV %[1]s"
	peerDeletesPV              verb = "the provisioner beside deletes PV %[1]s"
	processStarts              verb = "replica %[3]d starts"
	processLeads               verb = "replica %[3]d takes the lease"
	processEnds                verb = "replica %[3]d ends"
	processNotices             verb = "replica %[3]d notices that it leads no more, and ends"
	processStalls              verb = "replica %[3]d stalls for longer than its reads of PV %[1]s count"
	leaseMoves                 verb = "replica %[3]d takes the lease, and the other has not noticed"
	leaseExpires               verb = "replica %[3]d takes the lease, which ran out in a pause of the other, which goes on"
	watchDelivers              verb = "replica %[3]d sees a change of PV %[1]s"
	watchDeliversAttachment    verb = "replica %[3]d sees an attachment of PV %[1]s, or of its end"
	watchStartsAnew            verb = "replica %[3]d loses its watch of PVs and starts it anew"
	watchDeliversClaim         verb = "replica %[3]d sees a change of claim %[2]s"
	claimEndAges               verb = "replica %[3]d has seen the end of claim %[2]s for longer than that counts"
	claimWatchStartsAnew       verb = "replica %[3]d loses its watch of claims and starts it anew"
	workerBegins               verb = "replica %[3]d reconciles PV %[1]s"
	clockWakes                 verb = "replica %[3]d reconciles PV %[1]s again, after a while"
	protectionBegins           verb = "replica %[3]d has room to protect PV %[1]s"
	lateCallArrives            verb = "a call about PV %[1]s arrives of a replica that has ended"
	lateCallLost               verb = "a call about PV %[1]s of a replica that has ended is lost"
)

// The outcomes of calls, by their actions.
var (
	actions      = search.Names(reclaim.FinalizePV)
	callArrives  = search.Verbs("replica %%[3]d: %s of PV %%[1]s arrives", actions)
	callFails    = search.Verbs("replica %%[3]d: %s of PV %%[1]s fails", actions)
	callAnswered = search.Verbs("replica %%[3]d: %s of PV %%[1]s is answered", actions)
	answerLost   = search.Verbs("replica %%[3]d: the answer to %s of PV %%[1]s, which was done, is lost", actions)
)

// move is one thing that happens: to a PV, a replica, or both.
type move struct {
	verb
	replica, slot int
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	def := w.PVs[m.slot]
	return m.Sentence(def.Name, def.claimName(), m.replica)
}
