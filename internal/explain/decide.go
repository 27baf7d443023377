package explain

import (
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	engine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Decision is the decision on a PV or a claim, and the program that makes it.
type Decision struct {
	// By is the program that decides, with its role.
	By string `json:"by"`
	// Action is the next step: Wait if no step can be taken now, empty if the step is unknown.
	Action string `json:"action,omitempty"`
	// Reason is the word for the decision in Events, metrics and logs.
	Reason string `json:"reason"`
	Text   string `json:"text"`

	// protected: the PV carries a finalizer that counts. waits: the object is due for deletion, which is held back for
	// now. needsClaim: the decision depends on the claim, which was not read.
	protected, waits, needsClaim bool
	// neededBy names the other PVs that keep the volume.
	neededBy []string
}

// inTreePrefix begins the name of every in-tree volume plugin.
const inTreePrefix = "kubernetes.io/"

// CSIName reports whether the name of a provisioner can be a CSI driver's, which never contains a slash
// (ValidateCSIDriverName in pkg/apis/core/validation).
func CSIName(provisioner string) bool {
	return provisioner != "" && !strings.Contains(provisioner, "/")
}

// foreign reports whether a provisioner without CSI owns the PV, such as rancher.io/local-path. Such a provisioner has
// neither CSIDriver nor CSINode, and a Lease of any name, so their absence says nothing about it. csi-reclaimer does
// not decide on its volumes.
func (pv PV) foreign() bool {
	owner := pv.Owner()
	otherSource := pv.InTree && pv.Driver != owner && pv.MigratedTo != owner
	return owner != "" && !InTree(owner) && (!CSIName(owner) || otherSource)
}

// decide returns the decision on a PV. claim is the result of reading the PV's claim, with a nil Value if the claim is
// gone. A step that only an unread fact asks for is returned without an Action.
func (w ClusterFacts) decide(pv PV, claim Read[*v1.PersistentVolumeClaim]) Decision {
	owner := pv.Owner()
	switch {
	case pv.TwinOf != "":
		return Decision{By: VolumeGuard, Action: "Wait", Reason: "Twin",
			Text: "The PV is a second name of another PV's volume, which volume-guard created to have that volume deleted. " +
				"volume-guard deletes it."}
	case InTree(owner) && pv.Tree == nil:
		return Decision{By: "kube-controller-manager", Reason: string(engine.ReasonNotOurs), Text: foreignPlugin(pv)}
	case InTree(owner):
		return w.decideInTree(pv, claim)
	case owner == "":
		return Decision{By: "kube-controller-manager", Reason: string(engine.ReasonNotOurs),
			Text: engine.ReasonNotOurs.Sentence()}
	case pv.foreign():
		return Decision{By: owner, Reason: string(engine.ReasonNotOurs),
			Text: "Provisioner " + owner + ", which is not a CSI driver, decides on the volume."}
	}
	e := engine.Explain(w.reclaimFacts(pv, owner, claim), w.Now)
	role, _ := w.RoleOf(owner)
	d := Decision{
		By: fmt.Sprintf("csi-reclaimer beside %s, role %s", owner, role), Action: e.Decision.Action.String(),
		Reason: string(e.Decision.Reason), Text: e.Text, protected: e.Protected, waits: e.Waits, neededBy: e.NeededBy,
	}
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
func foreignPlugin(pv PV) string {
	return fmt.Sprintf("No program deletes the volume: the annotation %s names the in-tree plugin %s, and the source of "+
		"the PV is a volume of driver %s.", volume.AnnProvisionedBy, pv.Owner(), pv.Driver)
}

// undecided turns d into the decision without a fact that was not read, which is the claim if needsClaim is set.
func (d Decision) undecided(needsClaim bool) Decision {
	d.Action, d.Reason, d.needsClaim = "", string(engine.ReasonAPIReadFailed), needsClaim
	d.Text = "A fact that a deletion depends on could not be read here, so whether the volume is deleted now is not known."
	return d
}

// ifGone corrects the decision on a PV whose driver is gone: no program takes the step. d is returned unchanged if it
// takes none, or if the driver may be there.
func (w ClusterFacts) ifGone(d Decision, owner string) Decision {
	if d.Action == "" || d.Action == engine.Wait.String() || InTree(owner) || w.presenceOf(owner) != presenceGone {
		return d
	}
	d.By += ", when the driver is installed again"
	d.Text = "Driver " + owner + " is gone: nothing happens to the PV until it is installed again."
	return d
}

// reclaimFacts returns the facts of the sidecar, as far as live reads show them. The sidecar's memory
// (reclaim.History, reclaim.Done) is not part of them. Secrets count as read, so the returned decision follows reading
// them.
func (w ClusterFacts) reclaimFacts(pv PV, driver string, claim Read[*v1.PersistentVolumeClaim]) engine.Facts {
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
	s.Log, s.LogProblem = w.logState(driver, pv.Name)
	if claim.OK() {
		s.Claim = readClaim(pv.Claim, claim.Value)
		s.Claim.Read = read(1)
	}
	for _, other := range w.siblingsOf(pv) {
		s.Siblings = append(s.Siblings, other.PV)
		switch its := w.SiblingClaims[other.Claim]; {
		case !its.OK():
			s.SiblingsRead = session.Read{}
		case engine.ClaimNeedsVolume(other.PV, readClaim(other.Claim, its.Value)):
			s.SiblingNeeded = other.Name
		}
		s.Attachments += len(w.attachmentsOf(other.Name))
	}
	return s
}

// logState returns the state of the PV's volume in a driver's in-flight log, and the problem that hides it, if any.
func (w ClusterFacts) logState(driver, pv string) (state engine.LogState, problem string) {
	if !w.InFlight.OK() {
		return engine.LogUnknown, ""
	}
	return w.InFlight.Value.Of(driver).InFlight(pv)
}

// readClaim converts the result of reading a claim; nil means that the claim is gone.
func readClaim(of volume.ClaimRef, claim *v1.PersistentVolumeClaim) engine.ClaimFacts {
	if claim == nil {
		return engine.ClaimFacts{Of: of}
	}
	return engine.ClaimFacts{Of: of, Found: true, UID: claim.UID, VolumeName: claim.Spec.VolumeName}
}

// wantsDeletion reports whether the PV's own fields ask for the deletion of its volume.
func wantsDeletion(pv volume.PV) bool {
	return pv.Policy == volume.PolicyDelete && (pv.Phase == volume.PhaseReleased || pv.Phase == volume.PhaseFailed) &&
		pv.Claim.UID != ""
}

// releaseBrakeCommand returns the command that releases a driver's brake, empty if no brake is known to be on. The
// facts must be indexed.
func (w ClusterFacts) releaseBrakeCommand(driver string) (command string) {
	if on, _ := w.brakesOf(driver); len(on) > 0 {
		return fmt.Sprintf("kubectl annotate lease -n %s %s %s-", on[0].Namespace, on[0].Name, reclaim.BrakeAnnotation)
	}
	return ""
}

// brakesOf returns the driver's Leases with the brake's annotation. The Leases in on stop csi-reclaimer. It does not
// read the Leases in idle, because they are not of its role. A held Lease shows the namespace.
func (w ClusterFacts) brakesOf(driver string) (on, idle []coordinationv1.Lease) {
	name, leases := w.brakeLease(driver), w.leasesOf(driver)
	leaders := w.leadersOf(driver)
	reads := func(l coordinationv1.Lease) bool {
		return l.Name == name && slices.ContainsFunc(leaders, func(leads coordinationv1.Lease) bool {
			return l.Namespace == leads.Namespace && l.Name == leads.Name
		})
	}
	led := slices.ContainsFunc(leases, reads)
	for _, lease := range leases {
		_, annotated := lease.Annotations[reclaim.BrakeAnnotation]
		switch {
		case !annotated:
		case reads(lease), lease.Name == name && !led:
			on = append(on, lease)
		default:
			idle = append(idle, lease)
		}
	}
	return on, idle
}

// brakeLease returns the name of the Lease from which csi-reclaimer reads the brake. If the role is guessed, a leader
// beside a provisioner shows it better than finalizers do.
func (w ClusterFacts) brakeLease(driver string) string {
	names := leaseNames(driver)
	role, guessed := w.RoleOf(driver)
	beside := func(l coordinationv1.Lease) bool { return l.Name == names[1] && IsHeld(l, w.Now) }
	if role != volume.RoleOwner || guessed && slices.ContainsFunc(w.leasesOf(driver), beside) {
		return names[1]
	}
	return names[0]
}

// idleBrakes returns a warning for each of the driver's Leases whose annotation stops no deletion.
func (w ClusterFacts) idleBrakes(driver string) (warnings []string) {
	more := ""
	if _, guessed := w.RoleOf(driver); guessed {
		more = " Its role is guessed; set it with --role."
	}
	_, idle := w.brakesOf(driver)
	for _, lease := range idle {
		warnings = append(warnings, fmt.Sprintf("The brake's annotation on Lease %s/%s has no effect: csi-reclaimer beside "+
			"%s reads Lease %s in its own namespace.%s", lease.Namespace, lease.Name, driver, w.brakeLease(driver), more))
	}
	return warnings
}

// inTreeClaim is readClaim for an in-tree PV; nil means that the claim is gone.
func inTreeClaim(of volume.ClaimRef, claim *v1.PersistentVolumeClaim, read session.Read) intree.ClaimFacts {
	if claim == nil {
		return intree.ClaimFacts{Read: read, Of: of}
	}
	return intree.ClaimFacts{Read: read, Of: of, Found: true, UID: claim.UID, VolumeName: claim.Spec.VolumeName}
}

// inTreeFacts returns volume-guard's facts about an in-tree volume, as far as live reads show them.
func (w ClusterFacts) inTreeFacts(pv PV, claim Read[*v1.PersistentVolumeClaim]) intree.Facts {
	read := func(order int) session.Read { return session.Read{Sent: w.Now, Order: order} }
	s := intree.Facts{Other: intree.OtherAbsent, PV: *pv.Tree, PVRead: read(4), SiblingsRead: read(3)}
	if pv.Tree.Writer == intree.WriterOther {
		s.Other = intree.OtherPresent
	}
	if w.Attachments.OK() {
		s.Attachments = intree.AttachmentFacts{Read: read(2), Count: len(w.attachmentsOf(pv.Name))}
	}
	if claim.OK() {
		s.Claim = inTreeClaim(pv.Claim, claim.Value, read(1))
	}
	for _, other := range w.siblingsOf(pv) {
		s.Siblings = append(s.Siblings, *other.Tree)
		switch its := w.SiblingClaims[other.Claim]; {
		case !its.OK():
			s.SiblingsRead = session.Read{}
		case intree.Needed(*other.Tree, inTreeClaim(other.Claim, its.Value, read(3))):
			s.SiblingNeeded = other.Name
		}
		s.Attachments.Count += len(w.attachmentsOf(other.Name))
		if other.Name == volume.TwinName(pv.Name) {
			s.Twin, s.TwinFound = *other.Tree, true
		}
	}
	return s
}

func (w ClusterFacts) decideInTree(pv PV, claim Read[*v1.PersistentVolumeClaim]) Decision {
	by := VolumeGuard
	if pv.Tree.Writer == intree.WriterOther {
		by = pv.Tree.Manager
	}
	f := w.inTreeFacts(pv, claim)
	d := intree.Decide(f, w.Now)
	out := Decision{
		By: by, Action: d.Action.String(), Reason: string(d.Reason), Text: d.Reason.Sentence(),
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
	if by == VolumeGuard && !w.leads(VolumeGuard) && w.Leases.OK() && out.Action != "Wait" {
		out.Text += " This needs volume-guard to run: no replica holds its Lease."
	}
	return out
}
