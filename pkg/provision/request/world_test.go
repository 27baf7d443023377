package request

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	driver = "disk.csi.example.com"
	gib    = 1 << 30
)

// can returns a driver's capabilities: all that this package uses, except topology and SINGLE_NODE_MULTI_WRITER.
func can() Driver {
	return Driver{
		Name:   driver,
		Plugin: map[csi.PluginCapability_Service_Type]bool{csi.PluginCapability_Service_CONTROLLER_SERVICE: true},
		Controller: map[csi.ControllerServiceCapability_RPC_Type]bool{
			csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME:   true,
			csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT: true,
			csi.ControllerServiceCapability_RPC_CLONE_VOLUME:           true,
			csi.ControllerServiceCapability_RPC_MODIFY_VOLUME:          true,
		},
	}
}

// facts returns the facts of a plain claim for 5 GiB, with the changes.
func facts(changes ...func(*Facts)) Facts {
	class, filesystem, remove := "fast", v1.PersistentVolumeFilesystem, v1.PersistentVolumeReclaimDelete
	f := Facts{
		Claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "data", UID: "0f0c4b1e-7a51-4d2a-9f5e-3f6f1d2c8b7a", ResourceVersion: "7",
				Annotations: map[string]string{volume.AnnProvisioner: driver},
			},
			Spec: v1.PersistentVolumeClaimSpec{
				AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				StorageClassName: &class,
				VolumeMode:       &filesystem,
				Resources: v1.VolumeResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("5Gi")},
				},
			},
		},
		Class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: driver,
			ReclaimPolicy: &remove, Parameters: map[string]string{"type": "ssd"}},
		Driver: can(),
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

// volumeName is the volume name of the plain claim.
const volumeName = "pvc-0f0c4b1e-7a51-4d2a-9f5e-3f6f1d2c8b7a"

func parameter(key, value string) func(*Facts) {
	return func(f *Facts) { f.Class.Parameters[key] = value }
}

func annotation(key, value string) func(*Facts) {
	return func(f *Facts) { f.Claim.Annotations[key] = value }
}

func modes(modes ...v1.PersistentVolumeAccessMode) func(*Facts) {
	return func(f *Facts) { f.Claim.Spec.AccessModes = modes }
}

func blockMode(f *Facts) { mode := v1.PersistentVolumeBlock; f.Claim.Spec.VolumeMode = &mode }

func size(text string) func(*Facts) {
	return func(f *Facts) {
		f.Claim.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse(text)}
	}
}

// zones gives the driver topology, with nodes n-a and n-b in zones a and b.
func zones(f *Facts) {
	f.Driver.Plugin[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS] = true
	for _, zone := range []string{"a", "b"} {
		f.Nodes = append(f.Nodes, topology.Node{Name: "n-" + zone, Labels: map[string]string{"zone": zone},
			Keys: []string{"zone"}})
	}
}

// late makes the class bind late.
func late(f *Facts) {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	f.Class.VolumeBindingMode = &mode
}

// selected makes one of the nodes the selected node.
func selected(name string) func(*Facts) {
	return func(f *Facts) {
		f.Claim.Annotations[volume.AnnSelectedNode] = name
		for _, n := range f.Nodes {
			if n.Name == name {
				f.Selected = &n
			}
		}
	}
}

// fromSource sets the source of the claim's data in both fields.
func fromSource(group *string, kind, name string) func(*Facts) {
	return func(f *Facts) {
		f.Claim.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: group, Kind: kind, Name: name}
		f.Claim.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: group, Kind: kind, Name: name}
	}
}

// restored makes a ready snapshot of 4 GiB the claim's source, with the changes.
func restored(changes ...func(*Snapshot)) func(*Facts) {
	return func(f *Facts) {
		group, restoreSize, mode := snapshotGroup, int64(4*gib), v1.PersistentVolumeFilesystem
		fromSource(&group, "VolumeSnapshot", "snap")(f)
		s := &Snapshot{
			Namespace: "team", Name: "snap", UID: "s-1", Ready: true, RestoreSize: &restoreSize, ContentName: "content",
			Content: &SnapshotContent{
				Name: "content", Driver: driver, Handle: "snap-1", SnapshotUID: "s-1",
				Snapshot: types.NamespacedName{Namespace: "team", Name: "snap"}, SourceMode: &mode,
			},
		}
		f.Source.Snapshot = s
		for _, change := range changes {
			change(s)
		}
	}
}

// cloned makes a bound claim of 4 GiB the claim's source, with the changes.
func cloned(changes ...func(*v1.PersistentVolumeClaim, *v1.PersistentVolume)) func(*Facts) {
	return func(f *Facts) {
		fromSource(nil, "PersistentVolumeClaim", "source")(f)
		claim := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "source", UID: "c-1"},
			Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv-source",
				Resources: v1.VolumeResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("4Gi")},
				}},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		}
		pv := &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv-source"},
			Spec: v1.PersistentVolumeSpec{
				ClaimRef: &v1.ObjectReference{Namespace: "team", Name: "source", UID: "c-1"},
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver,
					VolumeHandle: "vol-source"}},
			},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
		}
		f.Source.Claim, f.Source.PV = claim, pv
		for _, change := range changes {
			change(claim, pv)
		}
	}
}

// answer returns the answer of a driver that fulfilled the request, with the changes.
func answer(o Plan, changes ...func(*csi.Volume)) *csi.CreateVolumeResponse {
	volume := &csi.Volume{VolumeId: "vol-1", CapacityBytes: o.Request.GetCapacityRange().GetRequiredBytes(),
		ContentSource: o.Request.GetVolumeContentSource()}
	for _, change := range changes {
		change(volume)
	}
	return &csi.CreateVolumeResponse{Volume: volume}
}

// refusal is a case of facts with the expected reason of refusal, empty for a valid plan.
type refusal struct {
	f    Facts
	want Reason
}

// refusals plans with the facts of each case.
func refusals(t *testing.T, cases map[string]refusal) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := c.f.Claim.DeepCopy()
			_, err := NewPlan(c.f)
			if ReasonOf(err) != c.want || (err == nil) != (c.want == "") {
				t.Errorf("NewPlan: %v (%s), want %q", err, ReasonOf(err), c.want)
			}
			if err != nil && len(err.Error()) < 20 {
				t.Errorf("%q is no sentence", err)
			}
			if before.ResourceVersion != c.f.Claim.ResourceVersion {
				t.Error("the claim was changed")
			}
		})
	}
}
