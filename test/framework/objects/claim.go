package objects

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SelectedNode is the annotation by which the scheduler names the node to the provisioner of a claim.
const SelectedNode = "volume.kubernetes.io/selected-node"

// ClaimSpec describes a claim for a volume that a provisioner creates.
type ClaimSpec struct {
	// Name, new in the namespace, and the name of the StorageClass. Required.
	Name, Class string
	// Size as a quantity. Default: 1Mi.
	Size string
	// Block asks for a device instead of a filesystem.
	Block bool
	// From is the volume's data source; see FromSnapshot and FromClaim. Default: none.
	From *v1.TypedLocalObjectReference
	// Change alters the claim before it is made. Optional.
	Change func(*v1.PersistentVolumeClaim)
}

// FromSnapshot has a volume be restored from a VolumeSnapshot.
func FromSnapshot(name string) *v1.TypedLocalObjectReference {
	group := "snapshot.storage.k8s.io"
	return &v1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: name}
}

// FromClaim has a volume be a clone of another claim's.
func FromClaim(name string) *v1.TypedLocalObjectReference {
	return &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
}

// Claim is a claim that a provisioner serves.
type Claim struct {
	maker Maker
	Name  string
	UID   types.UID
}

// ClaimFor returns the spec of a claim for 1Mi of a StorageClass, "" for none, that one node may write to.
func ClaimFor(class string) v1.PersistentVolumeClaimSpec {
	return v1.PersistentVolumeClaimSpec{
		StorageClassName: &class,
		AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources: v1.VolumeResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
	}
}

// MakeClaim makes a claim and waits for nothing.
func (m Maker) MakeClaim(ctx context.Context, s ClaimSpec) (*Claim, error) {
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Spec: ClaimFor(s.Class)}
	claim.Spec.DataSource = s.From
	if s.Size != "" {
		bytes, err := resource.ParseQuantity(s.Size)
		if err != nil {
			return nil, fmt.Errorf("make claim %q: size %q: %w", s.Name, s.Size, err)
		}
		claim.Spec.Resources.Requests[v1.ResourceStorage] = bytes
	}
	if s.Block {
		mode := v1.PersistentVolumeBlock
		claim.Spec.VolumeMode = &mode
	}
	if s.Change != nil {
		s.Change(claim)
	}
	stored, err := m.Client.CoreV1().PersistentVolumeClaims(m.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make claim %q: %w", s.Name, err)
	}
	return &Claim{maker: m, Name: stored.Name, UID: stored.UID}, nil
}

// ClaimOf is a claim that is there already, in the namespace of m.
func (m Maker) ClaimOf(claim *v1.PersistentVolumeClaim) *Claim {
	return &Claim{maker: m, Name: claim.Name, UID: claim.UID}
}

// Get returns the current claim, or nil if it is gone or was replaced by another claim of its name.
func (c *Claim) Get(ctx context.Context) (*v1.PersistentVolumeClaim, error) {
	claim, err := c.maker.Client.CoreV1().PersistentVolumeClaims(c.maker.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case claim.UID != c.UID:
		return nil, nil
	}
	return claim, nil
}

// Volume returns the PV and volume of that name to be provisioned for the claim. They need not exist yet.
func (c *Claim) Volume(name string) *Volume {
	return &Volume{maker: c.maker, Name: name, ClaimName: c.Name, Claimed: true}
}

// Wait returns once the claim is as wanted; want gets nil for a claim that is gone. The error
// names the last state.
func (c *Claim) Wait(ctx context.Context, what string, want func(*v1.PersistentVolumeClaim) bool) error {
	return wait(ctx, fmt.Sprintf("claim %q to be %s", c.Name, what), source[v1.PersistentVolumeClaim]{
		get: c.Get, watch: c.maker.Client.CoreV1().PersistentVolumeClaims(c.maker.Namespace).Watch, name: c.Name,
		same: func(claim *v1.PersistentVolumeClaim) bool { return claim.UID == c.UID },
	}, want, DescribeClaim)
}

// WaitClaimNamed returns once the claim of a name is as wanted, whichever claim that is; want gets nil for none. The
// error names the last state.
func (m Maker) WaitClaimNamed(ctx context.Context, name, what string, want func(*v1.PersistentVolumeClaim) bool) error {
	volume := &Volume{maker: m, ClaimName: name}
	return wait(ctx, fmt.Sprintf("claim %q to be %s", name, what), source[v1.PersistentVolumeClaim]{
		get: volume.Claim, watch: m.Client.CoreV1().PersistentVolumeClaims(m.Namespace).Watch, name: name,
		same: func(*v1.PersistentVolumeClaim) bool { return true },
	}, want, DescribeClaim)
}

// WaitBound returns the claim's volume once it is bound, as Make would have made it.
func (c *Claim) WaitBound(ctx context.Context) (*Volume, error) {
	var pvName string
	err := c.Wait(ctx, "bound", func(claim *v1.PersistentVolumeClaim) bool {
		if claim == nil || claim.Status.Phase != v1.ClaimBound {
			return false
		}
		pvName = claim.Spec.VolumeName
		return true
	})
	if err != nil {
		return nil, err
	}
	pv, err := c.maker.Client.CoreV1().PersistentVolumes().Get(ctx, pvName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("find volume of claim %q: %w", c.Name, err)
	}
	vol := &Volume{maker: c.maker, Name: pv.Name, ClaimName: c.Name, PVUID: pv.UID, Claimed: true}
	if pv.Spec.CSI != nil {
		vol.Handle = pv.Spec.CSI.VolumeHandle
	}
	return vol, nil
}

// WaitSelected returns the node that the scheduler has chosen for the claim, once it has.
func (c *Claim) WaitSelected(ctx context.Context) (node string, err error) {
	err = c.Wait(ctx, "given a node", func(claim *v1.PersistentVolumeClaim) bool {
		if claim != nil {
			node = claim.Annotations[SelectedNode]
		}
		return node != ""
	})
	return node, err
}

// WaitGone returns once the claim is gone.
func (c *Claim) WaitGone(ctx context.Context) error {
	return c.Wait(ctx, "gone", func(claim *v1.PersistentVolumeClaim) bool { return claim == nil })
}

// Delete deletes the claim, as kubectl delete pvc --wait=false does.
func (c *Claim) Delete(ctx context.Context) error {
	return c.maker.Client.CoreV1().PersistentVolumeClaims(c.maker.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{})
}

// DescribeClaim describes the state of a claim in a few words.
func DescribeClaim(claim *v1.PersistentVolumeClaim) string {
	if claim == nil {
		return "gone"
	}
	text := string(claim.Status.Phase)
	if node := claim.Annotations[SelectedNode]; node != "" {
		text += ", for node " + node
	}
	if claim.Spec.VolumeName != "" {
		text += ", PV " + claim.Spec.VolumeName
	}
	if claim.DeletionTimestamp != nil {
		text += ", terminating"
	}
	if len(claim.Finalizers) > 0 {
		text += fmt.Sprintf(", finalizers %v", claim.Finalizers)
	}
	return text
}

// Class describes a StorageClass.
type Class struct {
	// Name, new in the cluster. Required.
	Name string
	// Policy of the PVs. Default: Delete.
	Policy v1.PersistentVolumeReclaimPolicy
	// WaitForPod has claims wait until the scheduler has chosen a node for a pod that uses them
	// (WaitForFirstConsumer). Default: they are provisioned at once.
	WaitForPod bool
	// Parameters for the driver, and the csi.storage.k8s.io/ keys for the provisioner.
	Parameters map[string]string
	// Change alters the class before it is made. Optional.
	Change func(*storagev1.StorageClass)
}

// MakeClass makes a StorageClass of the driver.
func (m Maker) MakeClass(ctx context.Context, c Class) (*storagev1.StorageClass, error) {
	policy, binding := c.Policy, storagev1.VolumeBindingImmediate
	if policy == "" {
		policy = v1.PersistentVolumeReclaimDelete
	}
	if c.WaitForPod {
		binding = storagev1.VolumeBindingWaitForFirstConsumer
	}
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: c.Name},
		Provisioner: m.Driver, Parameters: c.Parameters, ReclaimPolicy: &policy, VolumeBindingMode: &binding,
	}
	if c.Change != nil {
		c.Change(class)
	}
	stored, err := m.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make StorageClass %q: %w", c.Name, err)
	}
	return stored, nil
}

// MakeDriver creates the CSIDriver object of a driver whose volumes need no attaching. Without it, the attach-detach
// controller creates a VolumeAttachment for each volume of a scheduled pod, waits minutes for an attacher, and holds
// the volume as long. change alters the object before its creation; it may be nil.
func (m Maker) MakeDriver(ctx context.Context, change func(*storagev1.CSIDriver)) (*storagev1.CSIDriver, error) {
	attach := false
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: m.Driver},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}}
	if change != nil {
		change(driver)
	}
	stored, err := m.Client.StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make CSIDriver %q: %w", m.Driver, err)
	}
	return stored, nil
}
