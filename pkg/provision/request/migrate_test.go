package request

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const (
	gce       = "pd.csi.storage.gke.io"
	gceInTree = "kubernetes.io/gce-pd"
	gceHandle = "projects/p/zones/us-central1-a/disks/d"
)

// migrated sets a class of the in-tree plugin that the driver replaces.
func migrated(f *Facts) {
	f.Driver.Name, f.Class.Provisioner = gce, gceInTree
	f.Class.Parameters = map[string]string{}
	f.Claim.Annotations = map[string]string{volume.AnnProvisioner: gceInTree, volume.AnnMigratedTo: gce}
}

func namespaced(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "team", Name: name}
}

func inZone(v *csi.Volume) {
	v.VolumeId = gceHandle
	v.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{"topology.gke.io/zone": "us-central1-a"}}}
}

func TestMigration(t *testing.T) {
	f := facts(zones, migrated, parameter("fstype", "ext4"), parameter("zone", "us-central1-a"))
	o := mustPlan(t, f)
	if got := o.Request.VolumeCapabilities[0].GetMount().FsType; got != "ext4" {
		t.Errorf("filesystem %q", got)
	}
	if got := o.Request.AccessibilityRequirements.GetRequisite(); len(got) != 1 ||
		got[0].Segments["topology.gke.io/zone"] != "us-central1-a" {
		t.Errorf("places %v", got)
	}
	if len(o.Request.Parameters) != 0 || !o.Migrated {
		t.Errorf("parameters %v, migrated %v", o.Request.Parameters, o.Migrated)
	}
	if f.Class.AllowedTopologies != nil || len(f.Class.Parameters) != 2 {
		t.Errorf("the class was changed: %+v", f.Class)
	}

	pv := must.Get(o.PV(answer(o, inZone)))(t)
	if disk := pv.Spec.GCEPersistentDisk; disk == nil || disk.PDName != "d" || disk.FSType != "ext4" ||
		pv.Spec.CSI != nil {
		t.Errorf("source %+v", pv.Spec.PersistentVolumeSource)
	}
	if pv.Annotations[volume.AnnProvisionedBy] != gceInTree || pv.Annotations[volume.AnnMigratedTo] != gce ||
		pv.Spec.StorageClassName != "fast" || pv.Spec.ClaimRef == nil {
		t.Errorf("PV %+v", pv)
	}
	// The in-tree form loses the project, which the driver knows.
	if got := volume.Of(pv); !got.HasFinalizer || got.Driver != gce ||
		got.Handle != "projects/UNSPECIFIED/zones/us-central1-a/disks/d" || got.MigratedTo != gce {
		t.Errorf("as it is read again: %+v", got)
	}
}

// portworx sets a class of the plugin of Portworx.
func portworx(f *Facts) {
	migrated(f)
	f.Driver.Name, f.Class.Provisioner = "pxd.portworx.com", "kubernetes.io/portworx-volume"
	f.Claim.Annotations = map[string]string{volume.AnnProvisioner: f.Class.Provisioner,
		volume.AnnMigratedTo: f.Driver.Name}
}

// TestMigrationOfPortworx: its translation, as opposed to all others, changes the class' provisioner.
func TestMigrationOfPortworx(t *testing.T) {
	f := facts(portworx)
	o, err := NewPlan(f)
	if err != nil || !o.Migrated {
		t.Fatalf("migrated %v, %v", o.Migrated, err)
	}
	pv, err := o.PV(answer(o))
	if err != nil || pv.Spec.PortworxVolume == nil || pv.Annotations[volume.AnnProvisionedBy] != f.Class.Provisioner ||
		pv.Annotations[volume.AnnMigratedTo] != f.Driver.Name {
		t.Errorf("PV %+v, %v", pv, err)
	}
}

// TestMigrationKeepsSecrets translates a PV back, as kubelet, external-attacher and external-resizer do.
func TestMigrationKeepsSecrets(t *testing.T) {
	t.Parallel()
	o, err := NewPlan(facts(portworx, func(f *Facts) {
		f.Class.Parameters = map[string]string{"openstorage.io/auth-secret-name": "of-${pvc.name}",
			"openstorage.io/auth-secret-namespace": "${pvc.namespace}"}
	}))
	if err != nil {
		t.Fatal(err)
	}
	pv, err := o.PV(answer(o))
	if err != nil || pv.Spec.PortworxVolume == nil {
		t.Fatalf("PV %+v, %v", pv, err)
	}
	back := must.Get(csitranslation.New().TranslateInTreePVToCSI(klog.Background(), pv))(t)
	is, was := back.Spec.CSI, o.Template.Spec.CSI
	for call, refs := range map[string][2]*v1.SecretReference{
		"ControllerPublishVolume": {is.ControllerPublishSecretRef, was.ControllerPublishSecretRef},
		"NodeStageVolume":         {is.NodeStageSecretRef, was.NodeStageSecretRef},
		"NodePublishVolume":       {is.NodePublishSecretRef, was.NodePublishSecretRef},
		"ControllerExpandVolume":  {is.ControllerExpandSecretRef, was.ControllerExpandSecretRef},
		"NodeExpandVolume":        {is.NodeExpandSecretRef, was.NodeExpandSecretRef},
	} {
		if refs[0] == nil || refs[1] == nil || *refs[0] != *refs[1] || *o.Secret != *refs[0] {
			t.Errorf("%s: Secret %v, want %v", call, refs[0], refs[1])
		}
	}
}

func TestMigrationRefused(t *testing.T) {
	refusals(t, map[string]refusal{
		"a class of the plugin":        {facts(migrated), ""},
		"a class of the driver itself": {facts(migrated, func(f *Facts) { f.Class.Provisioner = gce }), ""},
		"a class of another plugin": {facts(migrated,
			func(f *Facts) { f.Class.Provisioner = "kubernetes.io/aws-ebs" }), ReasonNotOurs},
		"a driver that took over from no plugin": {facts(func(f *Facts) { f.Class.Provisioner = gceInTree }), ReasonNotOurs},
		"a zone twice": {facts(migrated, parameter("zone", "a"), func(f *Facts) {
			f.Class.AllowedTopologies = []v1.TopologySelectorTerm{
				{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"b"}}}},
			}
		}), ReasonClassUntranslatable},
		"a clone of a volume of the plugin": {facts(migrated, cloned(func(_ *v1.PersistentVolumeClaim,
			pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
				GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "s"},
			}
			pv.Labels = map[string]string{v1.LabelTopologyZone: "us-central1-a"}
		})), ""},
	})
	o := mustPlan(t, facts(migrated))
	if pv, err := o.PV(answer(o)); pv != nil || ReasonOf(err) != ReasonAnswerUntranslatable {
		t.Errorf("a handle that the plugin cannot have: %v, %v", pv, err)
	}
}
