package volumes

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	engine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// decision is a Decision with the facts about it that the explanations of this package need.
type decision struct {
	explain.Decision
	// protected: the PV carries a finalizer that counts. waits: the object is due for deletion, which is held back for
	// now. needsClaim: the decision depends on the claim, which was not read.
	protected, waits, needsClaim bool
	// neededBy names the other PVs that keep the volume.
	neededBy []string
}

// foreign reports whether a provisioner without CSI owns the PV, such as rancher.io/local-path. Such a provisioner has
// neither CSIDriver nor CSINode, and a Lease of any name, so their absence says nothing about it. csi-reclaimer does
// not decide on its volumes.
func foreign(pv explain.PV) bool {
	owner := pv.Owner()
	otherSource := pv.InTree && pv.Driver != owner && pv.MigratedTo != owner
	return owner != "" && !explain.InTree(owner) && (!explain.CSIName(owner) || otherSource)
}

// decide returns the decision on a PV. claim is the result of reading the PV's claim, with a nil Value if the claim is
// gone. A step that only an unread fact asks for is returned without an Action.
func (w ClusterFacts) decide(pv explain.PV, claim explain.Read[*v1.PersistentVolumeClaim]) decision {
	owner := pv.Owner()
	switch {
	case pv.TwinOf != "":
		return decision{Decision: explain.Decision{By: explain.VolumeGuard, Action: "Wait", Reason: "Twin",
			Text: "The PV is a second name of another PV's volume, which volume-guard created to have that volume deleted. " +
				"volume-guard deletes it."}}
	case explain.InTree(owner) && pv.Tree == nil:
		return decision{Decision: explain.Decision{By: "kube-controller-manager", Reason: string(engine.ReasonNotOurs),
			Text: foreignPlugin(pv)}}
	case explain.InTree(owner):
		return w.decideInTree(pv, claim)
	case owner == "":
		return decision{Decision: explain.Decision{By: "kube-controller-manager", Reason: string(engine.ReasonNotOurs),
			Text: engine.ReasonNotOurs.Sentence()}}
	case foreign(pv):
		return decision{Decision: explain.Decision{By: owner, Reason: string(engine.ReasonNotOurs),
			Text: "Provisioner " + owner + ", which is not a CSI driver, decides on the volume."}}
	}
	e := engine.Explain(w.reclaimFacts(pv, owner, claim), w.Now)
	role, _ := w.RoleOf(owner)
	d := decision{Decision: explain.Decision{By: fmt.Sprintf("csi-reclaimer beside %s, role %s", owner, role),
		Action: e.Decision.Action.String(), Reason: string(e.Decision.Reason), Text: e.Text},
		protected: e.Protected, waits: e.Waits, neededBy: e.NeededBy}
	if e.Decision.Reason == engine.ReasonLogNotRead {
		return d.undecided(false)
	}
	switch e.Decision.Action {
	case engine.ReadClaim, engine.ReadSiblings, engine.ListPVs, engine.ReadPV, engine.ListAttachments,
		engine.ReadSecrets:
		return d.undecided(e.Decision.Action == engine.ReadClaim)
	case engine.DeleteVolume:
		if !w.PVs.OK() {
			return d.undecided(false) // another PV may name the volume
		}
	default:
	}
	return d
}

// foreignPlugin explains a PV of a CSI volume whose annotation names an in-tree plugin, as in manifests that were
// rewritten for CSI. kube-controller-manager asks that plugin, which does not know the volume (findDeletablePlugin in
// pv_controller.go), and the driver's sidecar takes the PV for another provisioner's.
func foreignPlugin(pv explain.PV) string {
	return fmt.Sprintf("No program deletes the volume: the annotation %s names the in-tree plugin %s, and the source of "+
		"the PV is a volume of driver %s.", volume.AnnProvisionedBy, pv.Owner(), pv.Driver)
}

// undecided turns d into the decision without a fact that was not read, which is the claim if needsClaim is set.
func (d decision) undecided(needsClaim bool) decision {
	d.Action, d.Reason, d.needsClaim = "", string(engine.ReasonAPIReadFailed), needsClaim
	d.Text = "A fact that a deletion depends on could not be read here, so whether the volume is deleted now is not known."
	return d
}

// ifGone corrects the decision on a PV whose driver is gone: no program takes the step. d is returned unchanged if it
// takes none, or if the driver may be there.
func (w ClusterFacts) ifGone(d decision, owner string) decision {
	if d.Action == "" || d.Action == engine.Wait.String() || explain.InTree(owner) || w.presenceOf(owner) != presenceGone {
		return d
	}
	d.By += ", when the driver is installed again"
	d.Text = "Driver " + owner + " is gone: nothing happens to the PV until it is installed again."
	return d
}

// reclaimFacts returns the facts of the sidecar, as far as live reads show them. The sidecar's memory
// (reclaim.History, reclaim.Done) is not part of them. Secrets count as read, so the returned decision follows reading
// them.
func (w ClusterFacts) reclaimFacts(pv explain.PV, driver string,
	claim explain.Read[*v1.PersistentVolumeClaim]) engine.Facts {
	read := func(order int) session.Read { return session.Read{Sent: w.Now, Order: order} }
	role, _ := w.RoleOf(driver)
	s := engine.Facts{
		Leading: true, // as the leader decides
		Rules:   engine.Rules{Driver: driver, Role: role, ReclaimUnprotected: role != volume.RoleObserver, Logged: true},
		PV:      pv.PV, PVRead: read(3), SiblingsRead: read(2), SecretsRead: true, Brake: engine.BrakeOff,
		AttachmentsCurrent: w.Attachments.OK(), Attachments: len(w.attachmentsOf(pv.Name)),
	}
	// WasAttached only matters if VolumeAttachments cannot be read, and any volume may have been attached.
	s.PV.WasAttached = true
	if w.releaseBrakeCommand(driver) != "" {
		s.Brake = engine.BrakeOn
	}
	s.Rules.Local = w.InFlight.Value.OnNodes[driver] && !onePlace(pv)
	s.Log, s.LogProblem = w.logState(w.InFlight.Value.Of(driver).For(pv.PV), pv.Name)
	if claim.OK() {
		s.Claim, s.ClaimRead = pvclaim.ResultOf(pv.Claim, claim.Value), read(1)
	}
	for _, other := range w.SiblingsOf(pv) {
		s.Siblings = append(s.Siblings, other.PV)
		switch its := w.SiblingClaims[other.Claim]; {
		case !its.OK():
			s.SiblingsRead = session.Read{}
		case engine.ClaimNeedsVolume(other.PV, pvclaim.ResultOf(other.Claim, its.Value)):
			s.SiblingNeeded = other.Name
		}
		s.Attachments += len(w.attachmentsOf(other.Name))
	}
	return s
}

// onePlace reports whether the node affinity of a PV names one place. Otherwise no node of a driver with
// --node-deployment decides on the PV, and its Reach is unclear. The labels are taken for the driver's own.
func onePlace(pv explain.PV) bool {
	at := pv.Segments()
	return len(slices.CompactFunc(at, maps.Equal)) == 1
}

// logState returns the state of a PV's volume in a driver's in-flight log, and the problem that hides it, if any.
func (w ClusterFacts) logState(log explain.InFlightLogs, pv string) (state volume.InFlight, problem string) {
	if !w.InFlight.OK() {
		return volume.InFlightUnknown, ""
	}
	return log.InFlight(pv)
}

// inTreeFacts returns volume-guard's facts about an in-tree volume, as far as live reads show them.
func (w ClusterFacts) inTreeFacts(pv explain.PV, claim explain.Read[*v1.PersistentVolumeClaim]) intree.Facts {
	read := func(order int) session.Read { return session.Read{Sent: w.Now, Order: order} }
	s := intree.Facts{Other: intree.OtherAbsent, PV: *pv.Tree, PVRead: read(4), SiblingsRead: read(3)}
	if pv.Tree.Writer == intree.WriterOther {
		s.Other = intree.OtherPresent
	}
	if w.Attachments.OK() {
		s.Attachments, s.AttachmentsRead = len(w.attachmentsOf(pv.Name)), read(2)
	}
	if claim.OK() {
		s.Claim, s.ClaimRead = pvclaim.ResultOf(pv.Claim, claim.Value), read(1)
	}
	for _, other := range w.SiblingsOf(pv) {
		s.Siblings = append(s.Siblings, *other.Tree)
		switch its := w.SiblingClaims[other.Claim]; {
		case !its.OK():
			s.SiblingsRead = session.Read{}
		case intree.Needed(*other.Tree, pvclaim.ResultOf(other.Claim, its.Value)):
			s.SiblingNeeded = other.Name
		}
		s.Attachments += len(w.attachmentsOf(other.Name))
		if other.Name == volume.TwinName(pv.Name) {
			s.Twin, s.TwinFound = *other.Tree, true
		}
	}
	return s
}

func (w ClusterFacts) decideInTree(pv explain.PV, claim explain.Read[*v1.PersistentVolumeClaim]) decision {
	by := explain.VolumeGuard
	if pv.Tree.Writer == intree.WriterOther {
		by = pv.Tree.Manager
	}
	f := w.inTreeFacts(pv, claim)
	d := intree.Decide(f, w.Now)
	out := decision{
		Decision:  explain.Decision{By: by, Action: d.Action.String(), Reason: string(d.Reason), Text: d.Reason.Sentence()},
		protected: pv.Tree.Writer != intree.WriterNone, waits: d.Action == intree.Wait && pv.Terminating,
		neededBy: f.NeededBy(),
	}
	switch d.Action {
	case intree.ReadClaim, intree.ReadAttachments, intree.ReadSiblings, intree.ReadPV, intree.ReadOriginal:
		return out.undecided(d.Action == intree.ReadClaim)
	case intree.CreateTwin, intree.SetTwinDelete:
		if !w.PVs.OK() {
			return out.undecided(false)
		}
	default:
	}
	if by == explain.VolumeGuard && !w.leads(explain.VolumeGuard) && w.Leases.OK() && out.Action != "Wait" {
		out.Text += " This needs volume-guard to run: " + explain.NoGuard + "."
	}
	return out
}

// VolumeFate is the fate of a volume after its claim's deletion.
type VolumeFate string

const (
	// VolumeUnknown: a fact was not read, or no program is known that decides.
	VolumeUnknown VolumeFate = "unknown"
	VolumeKept    VolumeFate = "kept"
	// VolumeWaits: the volume is due for deletion, and an obstacle keeps it. Some go by themselves, see the reason.
	VolumeWaits VolumeFate = "waits"
	// VolumeDeleted: the driver or the in-tree plugin deletes the volume.
	VolumeDeleted VolumeFate = "deleted"
	VolumeNone    VolumeFate = "none"
)

type VolumeOutcome struct {
	Fate VolumeFate `json:"fate"`
	// Reason is the reason word of the decision on the PV, as in Events and metrics. It is empty if nothing was decided.
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text"`
}

// AfterClaim is a pure function that returns the outcome for a PV's volume after the deletion of its claim and of the
// claim's pods. It starts from the present PV and asks the engine about its future state: Released, detached, and with
// the finalizer of its role. The facts must be indexed.
func (w ClusterFacts) AfterClaim(name string, claim types.UID) VolumeOutcome {
	pv, known := w.FindPV(name)
	switch {
	case name == "":
		return VolumeOutcome{Fate: VolumeNone, Text: "The claim has no volume yet."}
	case !w.PVs.OK():
		return VolumeOutcome{Fate: VolumeUnknown, Text: "PVs could not be read."}
	case !known:
		return VolumeOutcome{Fate: VolumeUnknown, Text: "PV " + name + " does not exist: the claim is lost."}
	case pv.Claim.UID != claim:
		return VolumeOutcome{Fate: VolumeUnknown, Text: "PV " + name + " is not bound to the claim."}
	case explain.InTree(pv.Owner()), pv.Owner() == "", foreign(pv):
		return w.afterInTree(pv)
	}
	pv.Phase = volume.PhaseReleased
	w.Attachments = explain.Found[[]storagev1.VolumeAttachment](nil)
	w.by = w.by.detached()
	if !w.InFlight.OK() {
		w.InFlight = explain.Found(explain.InFlightLogs{}) // a volume that was bound is not being created
	}
	d := w.decide(pv, explain.Found[*v1.PersistentVolumeClaim](nil))
	switch role, _ := w.RoleOf(pv.Owner()); { // the step that protects the PV comes first
	case d.Action == engine.AddFinalizer.String() && role == volume.RoleCompanion:
		pv.HasCompanionFinalizer = true
	case d.Action == engine.AddFinalizer.String():
		pv.HasFinalizer = true
	}
	d = w.decide(pv, explain.Found[*v1.PersistentVolumeClaim](nil))
	return w.outcome(pv, d)
}

func (w ClusterFacts) outcome(pv explain.PV, d decision) VolumeOutcome {
	out := VolumeOutcome{Fate: VolumeUnknown, Reason: d.Reason, Text: d.Text}
	gone := w.presenceOf(pv.Owner()) == presenceGone
	switch reason := engine.Reason(d.Reason); {
	case reason == engine.ReasonPolicyKeepsVolume, pv.Policy == volume.PolicyRetain &&
		(reason == engine.ReasonNoNode || reason == engine.ReasonLeftToPeer): // they come before the policy
		out.Fate, out.Text = VolumeKept, retained(pv)
	case reason == engine.ReasonHeld && w.inDoubt(pv, reason) != "":
		out.Text = w.inDoubt(pv, reason) + "."
	case w.inDoubt(pv, reason) != "":
		out.Text += " " + w.inDoubt(pv, reason) + "."
	case reason == engine.ReasonHeld:
		out.Fate = VolumeKept
	case gone && (reason == engine.ReasonReclaim || reason == engine.ReasonLeftToPeer):
		out.Fate = VolumeWaits
		out.Text = fmt.Sprintf("Driver %s, which deletes the volume, is not installed. The PV stays Released until it is.",
			pv.Owner())
	case d.Action == engine.DeleteVolume.String(), reason == engine.ReasonLeftToPeer:
		out.Fate, out.Text = VolumeDeleted, "Driver "+pv.Owner()+" deletes the volume, and the PV is deleted."
	case d.waits && reason != engine.ReasonPolicyUnknown:
		out.Fate = VolumeWaits
	}
	return out
}

// inDoubt explains why a volume may not be kept for a reason that no other provisioner than csi-reclaimer knows. It is
// empty for other reasons, if csi-reclaimer is seen to run as the provisioner, and for a terminating PV beside a
// companion, which the provisioner leaves alone without a finalizer of its own (shouldDelete of
// sig-storage-lib-external-provisioner).
func (w ClusterFacts) inDoubt(pv explain.PV, reason engine.Reason) string {
	driver := pv.Owner()
	if role, _ := w.RoleOf(driver); role == volume.RoleCompanion && pv.Terminating && reason != engine.ReasonHeld {
		return ""
	}
	switch reason {
	case engine.ReasonHeld, engine.ReasonDeletionsPaused, engine.ReasonSharedHandle, engine.ReasonClaimStillExists,
		engine.ReasonClaimNamesPV, engine.ReasonTopologyNotUnique, engine.ReasonInFlight, engine.ReasonLogUnreadable:
	default:
		return ""
	}
	switch {
	case w.obeysHolds(driver):
		return ""
	case reason == engine.ReasonHeld:
		return holdInDoubt(driver)
	}
	return "Only csi-reclaimer keeps the volume for this reason (" + string(reason) + "), and no Lease shows that it " +
		"runs as the provisioner of " + driver + "; an external-provisioner deletes the volume"
}

// holdInDoubt explains why a hold may not keep the volume of a PV.
func holdInDoubt(driver string) string {
	return "The annotation " + volume.HoldAnnotation + " keeps the volume only from csi-reclaimer, and no Lease shows " +
		"that it runs as the provisioner of " + driver + "; an external-provisioner ignores it"
}

// afterInTree does the same for a volume of an in-tree plugin or of a provisioner without CSI, or without a known
// owner: kube-controller-manager and such provisioners only look at the policy.
func (w ClusterFacts) afterInTree(pv explain.PV) VolumeOutcome {
	switch {
	case pv.Policy == volume.PolicyRetain:
		return VolumeOutcome{Fate: VolumeKept, Reason: string(engine.ReasonPolicyKeepsVolume), Text: retained(pv)}
	case pv.Policy == volume.PolicyRecycle:
		return VolumeOutcome{Fate: VolumeDeleted,
			Text: "kube-controller-manager deletes the files of the volume, and the PV is Available again."}
	case pv.Policy == volume.PolicyUnknown, pv.Owner() == "":
		return VolumeOutcome{Fate: VolumeUnknown, Text: "No program is known that deletes the volume of PV " + pv.Name + "."}
	case foreign(pv):
		return VolumeOutcome{Fate: VolumeDeleted,
			Text: "Provisioner " + pv.Owner() + " deletes the volume, and the PV is deleted."}
	case pv.Tree == nil:
		return VolumeOutcome{Fate: VolumeWaits, Reason: string(engine.ReasonNotOurs), Text: foreignPlugin(pv)}
	case pv.Tree.PluginGone:
		return VolumeOutcome{Fate: VolumeWaits,
			Text: "kube-controller-manager finds no plugin that deletes the volume. The PV stays."}
	}
	return VolumeOutcome{Fate: VolumeDeleted,
		Text: "The in-tree plugin " + pv.Owner() + " deletes the volume, and the PV is deleted."}
}

func retained(pv explain.PV) string {
	return "The reclaim policy " + pv.PolicyName() + " keeps the volume: PV " + pv.Name + " stays Released, until a " +
		"person deletes it and its volume."
}
