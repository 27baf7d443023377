// Package storage makes volumes, PersistentVolumes and claims for tests and the demo, and
// deletes them as a user would. The volumes are real ones of a CSI driver, the objects are
// real ones of an API server; nothing here knows what csi-reclaimer does.
package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// How often a condition is looked at: often at first, for the API server is on this machine,
// and then less and less, for it has other work to do.
const (
	pollFirst = 5 * time.Millisecond
	pollLast  = 80 * time.Millisecond
)

// poll returns how long to wait before the next look, after this many.
func poll(looks int) time.Duration { return min(pollFirst<<min(looks, 10), pollLast) }

// Maker makes volumes of one driver, for claims of one namespace.
type Maker struct {
	Client    kubernetes.Interface
	Driver    string
	Namespace string
	CSI       csi.ControllerClient
}

// Volume is a volume with its PV and, unless it is unclaimed, its claim. Name is that of the PV,
// and, if ClaimName is empty, of the claim.
type Volume struct {
	maker     Maker
	Name      string
	ClaimName string
	Handle    string
	PVUID     types.UID
	// Claimed: there is a claim, bound to the PV.
	Claimed bool
}

// Spec says what volume to make.
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
	vol := &Volume{maker: m, Name: s.Name, Handle: s.Handle, Claimed: !s.Unclaimed}
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
	if _, err := m.Client.CoreV1().PersistentVolumeClaims(m.Namespace).Create(ctx, m.claim(s.Name), metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make claim %q: %w", s.Name, err)
	}
	return vol, vol.WaitPV(ctx, "bound", func(pv *v1.PersistentVolume) bool { return pv != nil && pv.Status.Phase == v1.VolumeBound })
}

// Ask makes a claim that asks for a volume of the class, and returns once the provisioner has made
// it and they are bound.
func (m Maker) Ask(ctx context.Context, name, class string) (*Volume, error) {
	asks := m.claim(name)
	asks.Spec.StorageClassName, asks.Spec.VolumeName = &class, ""
	if _, err := m.Client.CoreV1().PersistentVolumeClaims(m.Namespace).Create(ctx, asks, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make claim %q: %w", name, err)
	}
	vol := &Volume{maker: m, ClaimName: name, Claimed: true}
	for looks := 0; ; looks++ {
		claim, err := vol.Claim(ctx)
		if err == nil && claim != nil && claim.Status.Phase == v1.ClaimBound {
			vol.Name = claim.Spec.VolumeName
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for claim %q to be bound: %w", name, ctx.Err())
		case <-time.After(poll(looks)):
		}
	}
	pv, err := m.Client.CoreV1().PersistentVolumes().Get(ctx, vol.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read PV %q: %w", vol.Name, err)
	}
	vol.PVUID = pv.UID
	if pv.Spec.CSI != nil {
		vol.Handle = pv.Spec.CSI.VolumeHandle
	}
	return vol, nil
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

func (v *Volume) claimName() string {
	if v.ClaimName != "" {
		return v.ClaimName
	}
	return v.Name
}

// DeletePV deletes the PV, as kubectl delete pv --wait=false does.
func (v *Volume) DeletePV(ctx context.Context) error {
	return v.maker.Client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{})
}

// DeleteClaim deletes the claim, as kubectl delete pvc --wait=false does.
func (v *Volume) DeleteClaim(ctx context.Context) error {
	return v.maker.Client.CoreV1().PersistentVolumeClaims(v.maker.Namespace).Delete(ctx, v.claimName(), metav1.DeleteOptions{})
}

// SetPolicy changes the reclaim policy.
func (v *Volume) SetPolicy(ctx context.Context, policy v1.PersistentVolumeReclaimPolicy) error {
	patch := fmt.Sprintf(`{"spec":{"persistentVolumeReclaimPolicy":%q}}`, policy)
	_, err := v.maker.Client.CoreV1().PersistentVolumes().Patch(ctx, v.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// PV returns the PV as it is now, nil when it is gone or was replaced by another of its name.
func (v *Volume) PV(ctx context.Context) (*v1.PersistentVolume, error) {
	pv, err := v.maker.Client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pv.UID != v.PVUID:
		return nil, nil
	}
	return pv, nil
}

// Claim returns the claim as it is now, nil when it is gone.
func (v *Volume) Claim(ctx context.Context) (*v1.PersistentVolumeClaim, error) {
	claim, err := v.maker.Client.CoreV1().PersistentVolumeClaims(v.maker.Namespace).Get(ctx, v.claimName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return claim, err
}

// WaitPV returns once the PV is as wanted; want gets nil for a PV that is gone. The error
// tells the state that it was last seen in.
func (v *Volume) WaitPV(ctx context.Context, what string, want func(*v1.PersistentVolume) bool) error {
	var last *v1.PersistentVolume
	for looks := 0; ; looks++ {
		pv, err := v.PV(ctx)
		if err == nil && want(pv) {
			return nil
		}
		if err == nil {
			last = pv
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for PV %q to be %s: %w; it is %s", v.Name, what, ctx.Err(), Describe(last))
		case <-time.After(poll(looks)):
		}
	}
}

// WaitGone returns once the PV is gone.
func (v *Volume) WaitGone(ctx context.Context) error {
	return v.WaitPV(ctx, "gone", func(pv *v1.PersistentVolume) bool { return pv == nil })
}

// WaitClaimGone returns once the claim is gone.
func (v *Volume) WaitClaimGone(ctx context.Context) error {
	for looks := 0; ; looks++ {
		claim, err := v.Claim(ctx)
		if err == nil && claim == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for claim %q to be gone: %w", v.claimName(), ctx.Err())
		case <-time.After(poll(looks)):
		}
	}
}

// Describe tells the state of a PV in a few words.
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
