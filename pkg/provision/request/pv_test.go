package request

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func mustPlan(t *testing.T, f Facts) Plan {
	t.Helper()
	o := must.Get(NewPlan(f))(t)
	return o
}

func mustPV(t *testing.T, f Facts, changes ...func(*csi.Volume)) *v1.PersistentVolume {
	t.Helper()
	o := mustPlan(t, f)
	pv := must.Get(o.PV(answer(o, changes...)))(t)
	return pv
}

func TestPV(t *testing.T) {
	filesystem := v1.PersistentVolumeFilesystem
	want := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:       volumeName,
			Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                            driver,
				"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
			},
		},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(6*gib, resource.BinarySI)},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			MountOptions:                  []string{"noatime"},
			VolumeMode:                    &filesystem,
			StorageClassName:              "fast",
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			ClaimRef: &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "team", Name: "data",
				UID: "0f0c4b1e-7a51-4d2a-9f5e-3f6f1d2c8b7a", ResourceVersion: "7"},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: "vol-1", FSType: "xfs",
				VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "me", "pool": "p"},
			}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
				{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: v1.NodeSelectorOpIn,
					Values: []string{"a"}}}},
			}}},
		},
	}
	f := facts(zones, parameter("csi.storage.k8s.io/fstype", "xfs"), func(f *Facts) {
		f.Settings.Identity, f.Class.MountOptions = "me", []string{"noatime"}
	})
	got := mustPV(t, f, func(v *csi.Volume) {
		v.CapacityBytes, v.VolumeContext = 6*gib, map[string]string{"pool": "p"}
		v.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{"zone": "a"}}}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPVDetails(t *testing.T) {
	readOnly := func(f *Facts) { f.Settings.ControllerPublishReadOnly = true }
	zoned := func(v *csi.Volume) {
		v.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{"zone": "a"}}}
	}
	gold := func(f *Facts) {
		name := "gold"
		f.Claim.Spec.VolumeAttributesClassName = &name
		f.Attributes = &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver}
	}
	nothing := func(*csi.Volume) {}
	cases := map[string]struct {
		f      Facts
		change func(*csi.Volume)
		want   func(*v1.PersistentVolume) bool
	}{
		"a size that the driver does not know is the one asked for": {facts(), func(v *csi.Volume) { v.CapacityBytes = 0 },
			func(pv *v1.PersistentVolume) bool {
				return pv.Spec.Capacity.Storage().Value() == 5*gib
			}},
		"a device has no filesystem": {facts(blockMode, parameter("csi.storage.k8s.io/fstype", "xfs")), nothing,
			func(pv *v1.PersistentVolume) bool {
				return pv.Spec.CSI.FSType == "" && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
			}},
		"readers only, read-only": {facts(modes(v1.ReadOnlyMany), readOnly), nothing,
			func(pv *v1.PersistentVolume) bool { return pv.Spec.CSI.ReadOnly }},
		"readers only, unchanged without the setting": {facts(modes(v1.ReadOnlyMany)), nothing,
			func(pv *v1.PersistentVolume) bool {
				return !pv.Spec.CSI.ReadOnly
			}},
		"readers among others are not read-only": {facts(modes(v1.ReadOnlyMany, v1.ReadWriteOnce), readOnly), nothing,
			func(pv *v1.PersistentVolume) bool {
				return !pv.Spec.CSI.ReadOnly
			}},
		"a writer is not read-only": {facts(readOnly), nothing,
			func(pv *v1.PersistentVolume) bool { return !pv.Spec.CSI.ReadOnly }},
		"places of a driver without topology mean nothing": {facts(), zoned, func(pv *v1.PersistentVolume) bool {
			return pv.Spec.NodeAffinity == nil
		}},
		"the class's policy": {
			facts(func(f *Facts) { keep := v1.PersistentVolumeReclaimRetain; f.Class.ReclaimPolicy = &keep }),
			nothing,
			func(pv *v1.PersistentVolume) bool {
				return pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimRetain
			},
		},
		"a class without a policy leaves it to the API server": {facts(func(f *Facts) { f.Class.ReclaimPolicy = nil }),
			nothing, func(pv *v1.PersistentVolume) bool {
				return pv.Spec.PersistentVolumeReclaimPolicy == ""
			}},
		"the attributes class": {facts(gold), nothing,
			func(pv *v1.PersistentVolume) bool { return *pv.Spec.VolumeAttributesClassName == "gold" }},
		"no attributes class": {facts(), nothing,
			func(pv *v1.PersistentVolume) bool { return pv.Spec.VolumeAttributesClassName == nil }},
		"the driver's attributes override the identity": {facts(func(f *Facts) { f.Settings.Identity = "me" }),
			func(v *csi.Volume) {
				v.VolumeContext = map[string]string{attributeIdentity: "driver"}
			}, func(pv *v1.PersistentVolume) bool { return pv.Spec.CSI.VolumeAttributes[attributeIdentity] == "driver" }},
		"a larger volume keeps its size": {facts(), func(v *csi.Volume) { v.CapacityBytes = 9 * gib },
			func(pv *v1.PersistentVolume) bool {
				return pv.Spec.Capacity.Storage().Value() == 9*gib
			}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if pv := mustPV(t, c.f, c.change); !c.want(pv) {
				t.Errorf("%+v", pv)
			}
		})
	}
}

// TestReclaimReadsThePV checks that package volume finds the fields that the deletion of the volume needs.
func TestReclaimReadsThePV(t *testing.T) {
	const csiKeys = "csi.storage.k8s.io/"
	pv := volume.Of(mustPV(t, facts(parameter(csiKeys+"secret-name", "s"),
		parameter(csiKeys+"secret-namespace", "vault"))))
	if !pv.HasFinalizer || pv.ProvisionedBy != driver || pv.Driver != driver || pv.Handle != "vol-1" || !pv.SecretKnown ||
		pv.DeletionSecret != (volume.SecretRef{Namespace: "vault", Name: "s"}) || pv.Claim.UID == "" ||
		pv.Policy != volume.PolicyDelete {
		t.Errorf("%+v", pv)
	}
	if pv := volume.Of(mustPV(t, facts())); !pv.SecretKnown || pv.DeletionSecret != (volume.SecretRef{}) {
		t.Errorf("without a Secret: %+v", pv)
	}
}

func TestAnswers(t *testing.T) {
	snapshot := func(id string) *csi.VolumeContentSource {
		return &csi.VolumeContentSource{
			Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}},
		}
	}
	volume := func(id string) *csi.VolumeContentSource {
		return &csi.VolumeContentSource{
			Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}},
		}
	}
	cases := map[string]struct {
		f      Facts
		change func(*csi.Volume)
		want   Reason
	}{
		"as asked for":    {facts(), func(*csi.Volume) {}, ""},
		"larger":          {facts(), func(v *csi.Volume) { v.CapacityBytes = 6 * gib }, ""},
		"of unknown size": {facts(), func(v *csi.Volume) { v.CapacityBytes = 0 }, ""},
		"a byte short": {facts(), func(v *csi.Volume) { v.CapacityBytes = 5*gib - 1 },
			ReasonAnswerTooSmall},
		"a size below zero": {facts(), func(v *csi.Volume) { v.CapacityBytes = -1 },
			ReasonAnswerTooSmall},
		"without an id": {facts(), func(v *csi.Volume) { v.VolumeId = "" },
			ReasonAnswerWithoutVolume},
		"without an id, and too small": {facts(), func(v *csi.Volume) { v.VolumeId, v.CapacityBytes = "", 1 },
			ReasonAnswerWithoutVolume},
		"restored": {facts(restored()), func(*csi.Volume) {}, ""},
		"restored from nothing": {facts(restored()), func(v *csi.Volume) { v.ContentSource = nil },
			ReasonAnswerFromNoSource},
		"restored from an unknown source": {facts(restored()),
			func(v *csi.Volume) { v.ContentSource = &csi.VolumeContentSource{} }, ""},
		"restored from a snapshot with an id of the cloud": {facts(restored()),
			func(v *csi.Volume) { v.ContentSource = snapshot("4711") }, ""},
		"restored from a volume of that name": {facts(restored()),
			func(v *csi.Volume) { v.ContentSource = volume("snap-1") }, ""},
		"cloned": {facts(cloned()),
			func(v *csi.Volume) { v.ContentSource = volume("vol-source") }, ""},
		"cloned from a volume with an id of the cloud": {facts(cloned()),
			func(v *csi.Volume) { v.ContentSource = volume("4711") }, ""},
		"cloned from a snapshot": {facts(cloned()),
			func(v *csi.Volume) { v.ContentSource = snapshot("vol-source") }, ""},
		"with unrequested data, unchanged": {
			facts(),
			func(v *csi.Volume) { v.ContentSource = snapshot("golden") },
			"",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := mustPlan(t, c.f)
			pv, err := o.PV(answer(o, c.change))
			if ReasonOf(err) != c.want || (pv == nil) != (c.want != "") {
				t.Errorf("PV: %v, %v", pv, err)
			}
		})
	}
	o := mustPlan(t, facts())
	for name, nothing := range map[string]*csi.CreateVolumeResponse{"no answer": nil, "no volume": {}} {
		if pv, err := o.PV(nothing); pv != nil || ReasonOf(err) != ReasonAnswerWithoutVolume {
			t.Errorf("%s: %v, %v", name, pv, err)
		}
	}
}

func TestRetainedPVHasNoFinalizer(t *testing.T) {
	keep, remove := v1.PersistentVolumeReclaimRetain, v1.PersistentVolumeReclaimDelete
	for policy, want := range map[*v1.PersistentVolumeReclaimPolicy]int{&keep: 0, &remove: 1, nil: 1} {
		if pv := mustPV(t, facts(func(f *Facts) { f.Class.ReclaimPolicy = policy })); len(pv.Finalizers) != want {
			t.Errorf("policy %q: %v", pv.Spec.PersistentVolumeReclaimPolicy, pv.Finalizers)
		}
	}
}

func TestCapabilities(t *testing.T) {
	multiWriter := func(f *Facts) {
		f.Driver.Controller[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER] = true
	}
	options := func(f *Facts) { f.Class.MountOptions = []string{"noatime"} }
	cases := map[string]struct {
		f    Facts
		want string
	}{
		"one node":                               {facts(), "SINGLE_NODE_WRITER mount  []"},
		"one node, driver that tells pods apart": {facts(multiWriter), "SINGLE_NODE_MULTI_WRITER mount  []"},
		"one pod":                                {facts(modes(v1.ReadWriteOncePod)), "SINGLE_NODE_WRITER mount  []"},
		"one pod, driver that tells pods apart": {facts(modes(v1.ReadWriteOncePod), multiWriter),
			"SINGLE_NODE_SINGLE_WRITER mount  []"},
		"readers": {facts(modes(v1.ReadOnlyMany)), "MULTI_NODE_READER_ONLY mount  []"},
		"writers": {facts(modes(v1.ReadWriteMany)), "MULTI_NODE_MULTI_WRITER mount  []"},
		"one for each mode, in the claim's order": {facts(modes(v1.ReadOnlyMany, v1.ReadWriteOnce)),
			"MULTI_NODE_READER_ONLY mount  []; SINGLE_NODE_WRITER mount  []"},
		"filesystem and mount options of the class": {facts(parameter("csi.storage.k8s.io/fstype", "xfs"), options),
			"SINGLE_NODE_WRITER mount xfs [noatime]"},
		"filesystem of the settings": {facts(func(f *Facts) { f.Settings.DefaultFSType = "ext4" }),
			"SINGLE_NODE_WRITER mount ext4 []"},
		"filesystem of the class before the settings'": {facts(parameter("fsType", "xfs"),
			func(f *Facts) { f.Settings.DefaultFSType = "ext4" }), "SINGLE_NODE_WRITER mount xfs []"},
		"a claim that says nothing of a mode, filesystem": {facts(func(f *Facts) { f.Claim.Spec.VolumeMode = nil }),
			"SINGLE_NODE_WRITER mount  []"},
		"a device has neither filesystem nor options": {facts(blockMode, options,
			parameter("csi.storage.k8s.io/fstype", "xfs")), "SINGLE_NODE_WRITER block"},
		"no access mode is refused":         {facts(modes()), string(ReasonClaimInvalid)},
		"an unknown access mode is refused": {facts(modes("Whatever")), string(ReasonClaimInvalid)},
		"one pod beside other access modes is refused": {facts(modes(v1.ReadWriteOnce, v1.ReadWriteOncePod)),
			string(ReasonClaimInvalid)},
		"one for equal modes": {facts(modes(v1.ReadOnlyMany, v1.ReadWriteOnce, v1.ReadOnlyMany)),
			"MULTI_NODE_READER_ONLY mount  []; SINGLE_NODE_WRITER mount  []"},
		"a filesystem of an empty name is the driver's own": {facts(parameter("csi.storage.k8s.io/fstype", "")),
			"SINGLE_NODE_WRITER mount  []"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := NewPlan(c.f)
			var got []string
			for _, capability := range o.Request.GetVolumeCapabilities() {
				text := capability.AccessMode.Mode.String()
				if capability.GetBlock() != nil {
					text += " block"
				} else {
					text += fmt.Sprintf(" mount %s %v", capability.GetMount().FsType, capability.GetMount().MountFlags)
				}
				got = append(got, text)
			}
			if err != nil {
				got = []string{string(ReasonOf(err))}
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"5Gi": 5 * gib, "1": 1, "1500m": 2, "1G": 1e9} {
		o, err := NewPlan(facts(size(text)))
		if got := o.Request.GetCapacityRange(); err != nil || got.RequiredBytes != want || got.LimitBytes != 0 {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
