package explain

import (
	"context"
	"fmt"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

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

// ReadVolumes reads the facts that decide the outcome of these PVs: the state of the cluster, the claims of PVs that share
// a volume with them, and the Leases of their drivers and of volume-guard. Failed reads are part of the facts.
func ReadVolumes(ctx context.Context, c Cluster, pvs []string) ClusterFacts {
	w := readCluster(ctx, c, nil)
	names := []string{VolumeGuard}
	var siblings []volume.ClaimRef
	w = w.Indexed()
	for _, name := range pvs {
		pv, known := w.FindPV(name)
		if !known {
			continue
		}
		names = append(names, leasesFor(pv)...)
		for _, other := range w.siblingsOf(pv) {
			if wantsDeletion(other.PV) {
				siblings = append(siblings, other.Claim)
			}
		}
	}
	w.Leases = c.Leases(ctx, names)
	w.SiblingClaims = map[volume.ClaimRef]Read[*v1.PersistentVolumeClaim]{}
	readClaims(ctx, c, siblings, w.SiblingClaims)
	return w
}

// Indexed returns the facts with the index that AfterClaim and FindPV need.
func (w ClusterFacts) Indexed() ClusterFacts { return w.indexed() }

// GuardRuns reports whether a replica of volume-guard holds its Lease. known is false if the Leases were not read.
func (w ClusterFacts) GuardRuns() (runs, known bool) { return w.leads(VolumeGuard), w.Leases.OK() }

// FindPV returns a PV of the list. known is false if the list lacks it or was not read. The facts must be indexed.
func (w ClusterFacts) FindPV(name string) (pv PV, known bool) {
	at, found := w.by.named[name]
	if !w.PVs.OK() || !found {
		return PV{}, false
	}
	return w.PVs.Value[at], true
}

// PolicyName returns the PV's reclaim policy as the Kubernetes API spells it.
func (pv PV) PolicyName() string { return policy(pv.Policy) }

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
	case InTree(pv.Owner()), pv.Owner() == "", pv.foreign():
		return w.afterInTree(pv)
	}
	pv.Phase = volume.PhaseReleased
	w.Attachments = Found[[]storagev1.VolumeAttachment](nil)
	w.by = w.by.detached()
	if !w.InFlight.OK() {
		w.InFlight = Found(InFlightLogs{}) // a volume that was bound is not being created
	}
	d := w.decide(pv, Found[*v1.PersistentVolumeClaim](nil))
	switch role, _ := w.RoleOf(pv.Owner()); { // the step that protects the PV comes first
	case d.Action == reclaim.AdoptPV.String():
		pv.HasFinalizer, pv.HasCompanionFinalizer = true, false
	case d.Action == reclaim.AddFinalizer.String() && role == volume.RoleCompanion:
		pv.HasCompanionFinalizer = true
	case d.Action == reclaim.AddFinalizer.String():
		pv.HasFinalizer = true
	}
	d = w.decide(pv, Found[*v1.PersistentVolumeClaim](nil))
	return w.outcome(pv, d)
}

func (w ClusterFacts) outcome(pv PV, d Decision) VolumeOutcome {
	out := VolumeOutcome{Fate: VolumeUnknown, Reason: d.Reason, Text: d.Text}
	gone := w.presenceOf(pv.Owner()) == presenceGone
	switch reason := reclaim.Reason(d.Reason); {
	case reason == reclaim.ReasonPolicyKeepsVolume:
		out.Fate, out.Text = VolumeKept, retained(pv)
	case reason == reclaim.ReasonHeld:
		out.Fate = VolumeKept
	case gone && (reason == reclaim.ReasonReclaim || reason == reclaim.ReasonLeftToPeer):
		out.Fate = VolumeWaits
		out.Text = fmt.Sprintf("Driver %s, which deletes the volume, is not installed. The PV stays Released until it is.",
			pv.Owner())
	case d.Action == reclaim.DeleteVolume.String(), reason == reclaim.ReasonLeftToPeer:
		out.Fate, out.Text = VolumeDeleted, "Driver "+pv.Owner()+" deletes the volume, and the PV is deleted."
	case d.waits && reason != reclaim.ReasonPolicyUnknown:
		out.Fate = VolumeWaits
	}
	return out
}

// afterInTree does the same for a volume of an in-tree plugin or of a provisioner without CSI, or without a known
// owner: kube-controller-manager and such provisioners only look at the policy.
func (w ClusterFacts) afterInTree(pv PV) VolumeOutcome {
	switch {
	case pv.Policy == volume.PolicyRetain:
		return VolumeOutcome{Fate: VolumeKept, Reason: string(reclaim.ReasonPolicyKeepsVolume), Text: retained(pv)}
	case pv.Policy == volume.PolicyRecycle:
		return VolumeOutcome{Fate: VolumeDeleted,
			Text: "kube-controller-manager deletes the files of the volume, and the PV is Available again."}
	case pv.Policy == volume.PolicyUnknown, pv.Owner() == "":
		return VolumeOutcome{Fate: VolumeUnknown, Text: "No program is known that deletes the volume of PV " + pv.Name + "."}
	case pv.foreign():
		return VolumeOutcome{Fate: VolumeDeleted,
			Text: "Provisioner " + pv.Owner() + " deletes the volume, and the PV is deleted."}
	case pv.Tree == nil:
		return VolumeOutcome{Fate: VolumeWaits, Reason: string(reclaim.ReasonNotOurs), Text: foreignPlugin(pv)}
	case pv.Tree.PluginGone:
		return VolumeOutcome{Fate: VolumeWaits,
			Text: "kube-controller-manager finds no plugin that deletes the volume. The PV stays."}
	}
	return VolumeOutcome{Fate: VolumeDeleted,
		Text: "The in-tree plugin " + pv.Owner() + " deletes the volume, and the PV is deleted."}
}

func retained(pv PV) string {
	return "The reclaim policy " + policy(pv.Policy) + " keeps the volume: PV " + pv.Name + " stays Released, until a " +
		"person deletes it and its volume."
}
