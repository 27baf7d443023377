package objects

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
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

// MakeClaim makes a claim and waits for nothing.
func (m Maker) MakeClaim(ctx context.Context, s ClaimSpec) (*Claim, error) {
	size := s.Size
	if size == "" {
		size = "1Mi"
	}
	bytes, err := resource.ParseQuantity(size)
	if err != nil {
		return nil, fmt.Errorf("make claim %q: size %q: %w", s.Name, size, err)
	}
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &s.Class,
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:        v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: bytes}},
			DataSource:       s.From,
		},
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
