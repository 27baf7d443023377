package volumes

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// TestAfterClaim changes a PV that is bound, attached and protected.
func TestAfterClaim(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*PVFacts)
		fate   VolumeFate
		words  string
	}{
		"policy Delete": {func(*PVFacts) {}, VolumeDeleted, "Driver " + driver + " deletes the volume"},
		"policy Retain": {func(f *PVFacts) { f.policy("Retain") },
			VolumeKept, "The reclaim policy Retain keeps the volume: PV pv stays Released"},
		"policy Retain, not protected": {func(f *PVFacts) { f.policy("Retain"); f.PV.Finalizers = nil },
			VolumeKept, "stays Released"},
		"policy Retain, and no node decides": {func(f *PVFacts) { f.onNodes(); f.policy("Retain") },
			VolumeKept, "The reclaim policy Retain keeps the volume"},
		"an unknown policy": {func(f *PVFacts) { f.policy("Shred") },
			VolumeUnknown, "does not know this reclaim policy"},
		"held, and csi-reclaimer provisions": {func(f *PVFacts) { f.hold("audit"); f.provisioner() }, VolumeKept,
			"The annotation " + volume.HoldAnnotation + " keeps the volume"},
		"held, and csi-reclaimer provisions on each node": {func(f *PVFacts) { f.hold("audit"); f.onNodes("a") }, VolumeKept,
			volume.HoldAnnotation + " keeps the volume"},
		"held, and no program leads": {func(f *PVFacts) { f.hold("audit") }, VolumeUnknown,
			"an external-provisioner ignores it"},
		"held, and Leases cannot be read": {func(f *PVFacts) { f.hold("audit"); explained.Forbid(&f.Leases) },
			VolumeUnknown, "no Lease shows that it runs as the provisioner of " + driver},
		"held, and the Lease expired": {func(f *PVFacts) {
			f.hold("audit")
			f.provisioner()
			f.Leases.Value[0].Spec.RenewTime.Time = now().Add(-time.Hour)
		}, VolumeUnknown, "no Lease shows"},
		"held, and a program without the label leads": {func(f *PVFacts) { f.hold("audit"); f.renewed("pod-1", 0) },
			VolumeUnknown, "no Lease shows"},
		"held, and external-provisioner took the Lease over": {func(f *PVFacts) {
			f.hold("audit")
			f.provisioner()
			f.Leases.Value[0].Spec.HolderIdentity = ptr.To("pod-2")
		}, VolumeUnknown, "no Lease shows"},
		"held, and csi-reclaimer leads beside a provisioner": {func(f *PVFacts) {
			f.hold("audit")
			f.provisioner()
			f.Leases.Value[0].Name += "-reclaimer"
		}, VolumeUnknown, "no Lease shows"},
		"not protected yet": {func(f *PVFacts) { f.PV.Finalizers = nil }, VolumeDeleted, "deletes the volume"},
		"beside a companion": {func(f *PVFacts) { f.companion() }, VolumeDeleted,
			"deletes the volume"},
		"beside a companion, held, which external-provisioner does not know": {func(f *PVFacts) {
			f.companion()
			f.hold("audit")
		}, VolumeDeleted, "deletes the volume"},
		"with an observer": {func(f *PVFacts) { f.Role = volume.RoleObserver }, VolumeDeleted, "deletes the volume"},
		"with an observer, policy Retain": {func(f *PVFacts) { f.Role = volume.RoleObserver; f.policy("Retain") },
			VolumeKept, "stays Released"},
		"the brake is on": {func(f *PVFacts) {
			f.brake("pod-1")
			f.Leases.Value[0].Labels = map[string]string{objects.DriverLabel: driver}
		}, VolumeWaits, "Deletions are paused"},
		"the brake is on, and external-provisioner leads": {func(f *PVFacts) { f.brake("pod-1") }, VolumeUnknown,
			"Only csi-reclaimer keeps the volume for this reason (DeletionsPaused), and no Lease shows"},
		"the Lease of the provisioner beside a companion has the brake's annotation": {func(f *PVFacts) {
			f.companion()
			f.brake("pod-1")
		}, VolumeDeleted, "deletes the volume"},
		"the driver is gone": {func(f *PVFacts) { f.uninstall() },
			VolumeWaits, driver + ", which deletes the volume, is not"},
		"the driver is gone, policy Retain": {func(f *PVFacts) { f.uninstall(); f.policy("Retain") },
			VolumeKept, "stays Released"},
		"another PV has the volume, too": {func(f *PVFacts) {
			f.sibling("other", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound })
			f.provisioner()
		}, VolumeWaits, "It is PV other"},
		"another PV has the volume, too, which external-provisioner does not compare": {func(f *PVFacts) {
			f.sibling("other", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound })
		}, VolumeUnknown, "It is PV other. Only csi-reclaimer keeps the volume for this reason (SharedHandle), and no Lease"},
		"terminating, and not protected": {func(f *PVFacts) { f.PV.Finalizers = nil; f.terminate(0) }, VolumeWaits,
			"can be gone before its volume is deleted"},
		"attachments cannot be read": {func(f *PVFacts) { explained.Forbid(&f.Attachments) },
			VolumeDeleted, "deletes the volume"},
		"the in-flight log cannot be read": {func(f *PVFacts) { explained.Forbid(&f.InFlight) },
			VolumeDeleted, "deletes the volume"},
		"an in-tree volume": {func(f *PVFacts) { ofPlugin(f) }, VolumeDeleted, "The in-tree plugin kubernetes.io/"},
		"an in-tree volume, held, which kube-controller-manager does not know": {func(f *PVFacts) {
			ofPlugin(f)
			f.hold("audit")
		}, VolumeDeleted, "The in-tree plugin"},
		"an owner after a companion": {func(f *PVFacts) { f.companion(); f.Role = volume.RoleOwner },
			VolumeDeleted, "deletes the volume"},
		"an in-tree volume with policy Recycle": {func(f *PVFacts) { ofPlugin(f); f.policy("Recycle") },
			VolumeDeleted, "deletes the files of the volume"},
		"an in-tree volume with an unknown policy": {func(f *PVFacts) { ofPlugin(f); f.policy("Shred") },
			VolumeUnknown, "No program is known"},
		"an in-tree volume with policy Retain": {func(f *PVFacts) { ofPlugin(f); f.policy("Retain") },
			VolumeKept, "stays Released"},
		"a migrated volume, and a CSI PV has it, too": {func(f *PVFacts) {
			f.sibling("static", func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = ebsDriver })
			ofEBS(f.PV)
			f.PV.Annotations[volume.AnnMigratedTo] = ebsDriver
			f.Installed = explain.Found([]string{ebsDriver})
		}, VolumeUnknown, "It is PV static"},
		"a CSI volume whose PV names an in-tree plugin": {func(f *PVFacts) { ofForeignPlugin(f) }, VolumeWaits,
			"No program deletes the volume"},
		"a volume created by hand": {func(f *PVFacts) {
			f.PV.Annotations = nil
			f.PV.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}
		}, VolumeUnknown, "No program is known"},
		"a volume of a provisioner without CSI": {ofLocalPath, VolumeDeleted, "Provisioner rancher.io/local-path deletes"},
		"a volume of a provisioner without CSI whose name looks like a driver's": {func(f *PVFacts) {
			ofLocalPath(f)
			f.PV.Annotations[volume.AnnProvisionedBy] = "local-path"
		}, VolumeDeleted, "Provisioner local-path deletes"},
		"a volume of a provisioner without CSI, policy Retain": {func(f *PVFacts) { ofLocalPath(f); f.policy("Retain") },
			VolumeKept, "stays Released"},
		"bound to another claim": {func(f *PVFacts) { f.PV.Spec.ClaimRef.UID = "new" }, VolumeUnknown,
			"not bound to the claim"},
	} {
		f := released()
		f.bound()
		f.attach(node(v1.ConditionTrue))
		f.PV.Finalizers = append(f.PV.Finalizers, "external-attacher/disk-csi-example-com")
		c.change(&f)
		pvs := []explain.PV{explain.PVOf(f.PV)}
		f.PVs.Value = append(pvs, f.PVs.Value[1:]...)
		got := f.Indexed().AfterClaim("pv", "c")
		if got.Fate != c.fate {
			t.Errorf("%s: %s, want %s: %+v", sentence, got.Fate, c.fate, got)
		}
		expect(t, got.Text, c.words)
	}
}

func ofPlugin(f *PVFacts) {
	f.PV.Annotations = map[string]string{volume.AnnProvisionedBy: "kubernetes.io/host-path"}
	f.PV.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/tmp/a"}}
}

// ofLocalPath gives the PV a volume of a provisioner that is not a CSI driver.
func ofLocalPath(f *PVFacts) {
	ofPlugin(f)
	f.PV.Annotations[volume.AnnProvisionedBy] = "rancher.io/local-path"
}

func TestAfterClaimWithoutPV(t *testing.T) {
	f := released().Indexed()
	for name, want := range map[string]VolumeFate{"": VolumeNone, "gone": VolumeUnknown} {
		if got := f.AfterClaim(name, "c"); got.Fate != want {
			t.Errorf("PV %q: %+v, want %s", name, got, want)
		}
	}
	explained.Forbid(&f.PVs)
	if got := f.AfterClaim("pv", "c"); got.Fate != VolumeUnknown || got.Text != "PVs could not be read." {
		t.Errorf("PVs are not read: %+v", got)
	}
}
