package explain

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Decision is what is decided on a PV or a claim, and by whom.
type Decision struct {
	// By is the program that decides, with its role.
	By string `json:"by"`
	// Action is the next step. Wait is none. Empty where it cannot be told.
	Action string `json:"action,omitempty"`
	// Reason is the word that Events, metrics and the log have for it.
	Reason string `json:"reason"`
	// Text is what the reason means, and what is known of this object.
	Text string `json:"text"`

	// protected: a finalizer that counts is on the PV. waits: it is on its way to be deleted, and does
	// not get there. asks: the claim has to be read before anything can be said.
	protected, waits, asks bool
}

// inTreePrefix begins the name of every plugin of kube-controller-manager.
const inTreePrefix = "kubernetes.io/"

// decide tells what is decided on a PV. claim is what a read of its claim brought, nil for one that is
// gone. A wait or a step that only an unread fact asks for has no Action.
func (w World) decide(pv PV, claim Read[*v1.PersistentVolumeClaim]) Decision {
	owner := pv.Owner()
	switch {
	case pv.TwinOf != "":
		return Decision{By: volumeGuard, Action: "Wait", Reason: "Twin",
			Text: "The PV is a second name of another PV's volume, made by volume-guard to have that volume deleted. It goes by itself."}
	case strings.HasPrefix(owner, inTreePrefix):
		return w.decideInTree(pv, claim)
	case owner == "":
		return Decision{By: "kube-controller-manager", Reason: string(reclaim.ReasonNotOurs), Text: reclaim.ReasonNotOurs.Sentence()}
	}
	e := reclaim.Explain(w.snapshot(pv, owner, claim), w.Now)
	role, _ := w.RoleOf(owner)
	d := Decision{
		By: fmt.Sprintf("csi-reclaimer beside %s, role %s", owner, role), Action: e.Decision.Action.String(),
		Reason: string(e.Decision.Reason), Text: e.Text, protected: e.Protected, waits: e.Waits,
	}
	if e.Decision.Reason == reclaim.ReasonLogNotRead {
		return d.open(false)
	}
	switch e.Decision.Action {
	case reclaim.ReadClaim, reclaim.ReadSiblings, reclaim.ReadFamily, reclaim.ReadPV, reclaim.CatchUpAttachments, reclaim.ReadSecrets:
		return d.open(e.Decision.Action == reclaim.ReadClaim)
	case reclaim.DeleteVolume:
		if !w.PVs.OK() {
			return d.open(false) // another PV may name the volume
		}
	default:
	}
	return d
}

// open is what can be told where something was not read that has to be known; asks tells that it is the claim.
func (d Decision) open(asks bool) Decision {
	d.Action, d.Reason, d.asks = "", string(reclaim.ReasonUnreadable), asks
	d.Text = "What has to be known before a deletion could not be read here, so it cannot be told whether the volume is deleted now."
	return d
}

// snapshot is what the sidecar would know, as far as live reads tell it. What a sidecar remembers
// (reclaim.History, reclaim.Done) is not in it. Secrets are not read here: it is told what
// comes after they were.
func (w World) snapshot(pv PV, driver string, claim Read[*v1.PersistentVolumeClaim]) reclaim.Snapshot {
	read := func(order int) reclaim.Read { return reclaim.Read{Sent: w.Now, Order: order} }
	role, _ := w.RoleOf(driver)
	s := reclaim.Snapshot{
		Leading: true, // what the leader does
		Rules:   reclaim.Rules{Driver: driver, Role: role, ReclaimUnprotected: role != volume.RoleObserver, Logged: true},
		PV:      pv.PV, PVRead: read(3), SiblingsRead: read(2), SecretsRead: true, Brake: reclaim.BrakeOff,
		AttachmentsCurrent: w.Attachments.OK(), Attachments: len(w.attachmentsOf(pv.Name)),
	}
	// Where the attachments cannot be read, any volume may have been attached.
	s.PV.WasAttached = s.PV.WasAttached || !w.Attachments.OK()
	if w.braked(driver) != "" {
		s.Brake = reclaim.BrakeOn
	}
	s.Log = w.logState(driver, pv.Name)
	if claim.OK() {
		s.Claim = readClaim(pv.Claim, claim.Value)
		s.Claim.Read = read(1)
	}
	for _, other := range w.siblingsOf(pv) {
		s.Siblings = append(s.Siblings, other.PV)
		switch its := w.SiblingClaims[other.Claim]; {
		case !due(other.PV):
		case !its.OK():
			s.SiblingsRead = reclaim.Read{}
		case reclaim.Needed(other.PV, readClaim(other.Claim, its.Value)):
			s.SiblingNeeded = other.Name
		}
		s.Attachments += len(w.attachmentsOf(other.Name))
	}
	return s
}

// logState returns what a driver's in-flight log has for the volume of a PV.
func (w World) logState(driver, pv string) reclaim.LogState {
	if !w.InFlight.OK() {
		return reclaim.LogUnknown
	}
	switch inFlight, known := w.InFlight.Value.Of(driver).InFlight(pv); {
	case inFlight:
		return reclaim.LogOpen
	case !known:
		return reclaim.LogUnknown
	}
	return reclaim.LogSettled
}

// readClaim is what a read of a claim shows; nil is one that is gone.
func readClaim(of volume.ClaimRef, claim *v1.PersistentVolumeClaim) reclaim.ClaimFacts {
	if claim == nil {
		return reclaim.ClaimFacts{Of: of}
	}
	return reclaim.ClaimFacts{Of: of, Found: true, UID: claim.UID, VolumeName: claim.Spec.VolumeName}
}

// due tells whether a PV asks for the end of its volume, as far as it shows.
func due(pv volume.PV) bool {
	return pv.Policy == volume.PolicyDelete && (pv.Phase == volume.PhaseReleased || pv.Phase == volume.PhaseFailed) && pv.Claim.UID != ""
}

// braked returns the command that lets a driver's deletions go on, empty where no brake is known.
func (w World) braked(driver string) (letGo string) {
	for _, lease := range w.leasesOf(driver) {
		if _, on := lease.Annotations[reclaim.BrakeAnnotation]; on {
			return fmt.Sprintf("kubectl annotate lease -n %s %s %s-", lease.Namespace, lease.Name, reclaim.BrakeAnnotation)
		}
	}
	return ""
}

const volumeGuard = "volume-guard"

// decideInTree tells what is decided on a volume of an in-tree plugin.
func (w World) decideInTree(pv PV, claim Read[*v1.PersistentVolumeClaim]) Decision {
	read := func(order int) intree.Read { return intree.Read{Sent: w.Now, Order: order} }
	s := intree.Snapshot{Manages: intree.ManagesNobody, PV: *pv.Tree, PVRead: read(4), SiblingsRead: read(3)}
	by := volumeGuard
	if pv.Tree.Guard == intree.WriterOther {
		s.Manages, by = intree.ManagesOther, pv.Tree.Manager
	}
	if w.Attachments.OK() {
		s.Attachments = intree.AttachmentFacts{Read: read(2), Count: len(w.attachmentsOf(pv.Name))}
	}
	if claim.OK() {
		s.Claim = intree.ClaimFacts{Read: read(1), Of: pv.Claim}
		if claim.Value != nil {
			s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, claim.Value.UID, claim.Value.Spec.VolumeName
		}
	}
	for _, other := range w.siblingsOf(pv) {
		s.Siblings = append(s.Siblings, *other.Tree)
		s.Attachments.Count += len(w.attachmentsOf(other.Name))
		if other.Name == intree.TwinName(pv.Name) {
			s.Twin, s.TwinFound = *other.Tree, true
		}
	}
	d := intree.Decide(s, w.Now)
	out := Decision{
		By: by, Action: d.Action.String(), Reason: string(d.Reason), Text: d.Reason.Sentence(),
		protected: pv.Tree.Guard != intree.WriterNone, waits: d.Action == intree.Wait && pv.Terminating,
	}
	switch d.Action {
	case intree.ReadClaim, intree.ReadAttachments, intree.ReadSiblings, intree.ReadPV, intree.ReadOriginal:
		return out.open(d.Action == intree.ReadClaim)
	case intree.MakeTwin, intree.ArmTwin:
		if !w.PVs.OK() {
			return out.open(false)
		}
	default:
	}
	if by == volumeGuard && !w.leads(volumeGuard) && w.Leases.OK() && out.Action != "Wait" {
		out.Text += " That is if volume-guard runs: nobody holds its Lease."
	}
	return out
}
