// Package objects creates and deletes the objects of storage users, for tests and the demo: volumes with their
// PersistentVolumes and claims ([Maker.Make]), classes, claims for a provisioner, pods and snapshots. The volumes are
// real volumes of a CSI driver, and the objects are real objects of an API server. The package knows nothing of
// csi-reclaimer.
package objects

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/typed/volumesnapshot/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Maker makes volumes of one driver, for claims of one namespace.
type Maker struct {
	Client    kubernetes.Interface
	Driver    string
	Namespace string
	CSI       csi.ControllerClient
	// Snapshots is needed by MakeSnapshot alone.
	Snapshots snapshotclient.SnapshotV1Interface
}

// Volume is a volume with its PV and, unless it is unclaimed, its claim.
type Volume struct {
	maker Maker
	// Name is the PV's, ClaimName the claim's. Both are the same unless the volume was provisioned.
	Name      string
	ClaimName string
	// Handle and PVUID are empty where neither volume nor PV is known yet.
	Handle string
	PVUID  types.UID
	// Claimed is true if the PV has a bound claim.
	Claimed bool
}

// Spec describes a volume.
type Spec struct {
	// Name of the PV and the claim. Required, new in the cluster.
	Name   string
	Policy v1.PersistentVolumeReclaimPolicy
	// Dynamic marks the PV as made by the driver's provisioner, as one in use would be;
	// otherwise it is static.
	Dynamic bool
	// Handle is an existing volume; default: a new one is made by the driver.
	Handle string
	// Unclaimed makes no claim.
	Unclaimed bool
	// Change alters the PV before it is made. Optional.
	Change func(*v1.PersistentVolume)
}

// Make makes the volume, its PV and its claim, and returns once they are bound.
func (m Maker) Make(ctx context.Context, s Spec) (*Volume, error) {
	vol := &Volume{maker: m, Name: s.Name, ClaimName: s.Name, Handle: s.Handle, Claimed: !s.Unclaimed}
	if vol.Handle == "" {
		made, err := m.CSI.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name:               s.Name,
			CapacityRange:      &csi.CapacityRange{RequiredBytes: 1 << 20},
			VolumeCapabilities: []*csi.VolumeCapability{filesystem()},
		})
		if err != nil {
			return nil, fmt.Errorf("make volume %q: %w", s.Name, err)
		}
		vol.Handle = made.GetVolume().GetVolumeId()
	}
	pv := m.pv(s, vol.Handle)
	if s.Change != nil {
		s.Change(pv)
	}
	stored, err := m.Client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make PV %q: %w", s.Name, err)
	}
	vol.PVUID = stored.UID
	if s.Unclaimed {
		return vol, nil
	}
	if _, err := m.Client.CoreV1().PersistentVolumeClaims(m.Namespace).Create(ctx, m.claim(s.Name),
		metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make claim %q: %w", s.Name, err)
	}
	return vol, vol.WaitPV(ctx, "bound",
		func(pv *v1.PersistentVolume) bool { return pv != nil && pv.Status.Phase == v1.VolumeBound })
}

func filesystem() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
}

func (m Maker) pv(s Spec, handle string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: s.Policy,
			PersistentVolumeSource: v1.PersistentVolumeSource{
				CSI: &v1.CSIPersistentVolumeSource{Driver: m.Driver, VolumeHandle: handle},
			},
		},
	}
	if !s.Unclaimed {
		pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: m.Namespace, Name: s.Name}
	}
	if s.Dynamic {
		pv.Annotations = map[string]string{
			"pv.kubernetes.io/provisioned-by":                            m.Driver,
			"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
			"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
		}
	}
	return pv
}

func (m Maker) claim(name string) *v1.PersistentVolumeClaim {
	noClass := ""
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &noClass,
			VolumeName:       name,
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
			},
		},
	}
}

// DeletePV deletes the PV, as kubectl delete pv --wait=false does.
func (v *Volume) DeletePV(ctx context.Context) error {
	return v.maker.Client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{})
}

// DeleteClaim deletes the claim, as kubectl delete pvc --wait=false does.
func (v *Volume) DeleteClaim(ctx context.Context) error {
	return v.maker.Client.CoreV1().PersistentVolumeClaims(v.maker.Namespace).Delete(ctx, v.ClaimName,
		metav1.DeleteOptions{})
}

// SetPolicy changes the reclaim policy.
func (v *Volume) SetPolicy(ctx context.Context, policy v1.PersistentVolumeReclaimPolicy) error {
	patch := fmt.Sprintf(`{"spec":{"persistentVolumeReclaimPolicy":%q}}`, policy)
	_, err := v.maker.Client.CoreV1().PersistentVolumes().Patch(ctx, v.Name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

// PV returns the current PV, or nil if it is gone or was replaced by another PV of its name.
func (v *Volume) PV(ctx context.Context) (*v1.PersistentVolume, error) {
	pv, err := v.maker.Client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !v.isPV(pv):
		return nil, nil
	}
	return pv, nil
}

// isPV reports whether a PV of the volume's name is its PV.
func (v *Volume) isPV(pv *v1.PersistentVolume) bool { return v.PVUID == "" || pv.UID == v.PVUID }

// Claim returns the current claim, or nil if it is gone.
func (v *Volume) Claim(ctx context.Context) (*v1.PersistentVolumeClaim, error) {
	claim, err := v.maker.Client.CoreV1().PersistentVolumeClaims(v.maker.Namespace).Get(ctx, v.ClaimName,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return claim, err
}

// WaitPV returns once the PV is as wanted; want gets nil for a PV that is gone. The error
// names the last state.
func (v *Volume) WaitPV(ctx context.Context, what string, want func(*v1.PersistentVolume) bool) error {
	return wait(ctx, fmt.Sprintf("PV %q to be %s", v.Name, what), source[v1.PersistentVolume]{
		get: v.PV, watch: v.maker.Client.CoreV1().PersistentVolumes().Watch, name: v.Name, same: v.isPV,
	}, want, Describe)
}

// WaitGone returns once the PV is gone.
func (v *Volume) WaitGone(ctx context.Context) error {
	return v.WaitPV(ctx, "gone", func(pv *v1.PersistentVolume) bool { return pv == nil })
}

// WaitClaimGone returns once the claim is gone.
func (v *Volume) WaitClaimGone(ctx context.Context) error {
	return v.maker.WaitClaimNamed(ctx, v.ClaimName, "gone",
		func(claim *v1.PersistentVolumeClaim) bool { return claim == nil })
}

// Describe describes the state of a PV in a few words.
func Describe(pv *v1.PersistentVolume) string {
	if pv == nil {
		return "gone"
	}
	text := string(pv.Status.Phase) + ", policy " + string(pv.Spec.PersistentVolumeReclaimPolicy)
	if pv.DeletionTimestamp != nil {
		text += ", terminating"
	}
	if len(pv.Finalizers) > 0 {
		text += fmt.Sprintf(", finalizers %v", pv.Finalizers)
	}
	return text
}
