// Package objects creates and deletes the objects of storage users, for tests and the demo: volumes with their
// PersistentVolumes and claims ([Maker.Make]), classes, claims for a provisioner, pods and snapshots. The volumes are
// real volumes of a CSI driver, and the objects are real objects of an API server. The package knows nothing of
// csi-reclaimer.
package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/typed/volumesnapshot/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
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
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: ClaimFor("")}
	claim.Spec.VolumeName = name
	return claim
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

// SnapshotSpec describes a snapshot.
type SnapshotSpec struct {
	// Name of the VolumeSnapshot, new in the namespace. Required.
	Name string
	// Of is the volume; it needs a claim. Required.
	Of *Volume
	// Change alters the objects before they are stored, with their status. Optional.
	Change func(*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent)
}

// Snapshot is a snapshot of the driver with its VolumeSnapshot and VolumeSnapshotContent.
type Snapshot struct {
	maker Maker
	// Name is the VolumeSnapshot's, Content the VolumeSnapshotContent's, Handle the driver's.
	Name, Content, Handle string
}

// MakeSnapshot has the driver take a snapshot, and creates the objects that external-snapshotter would: bound to each
// other, and ready. No controller of snapshots needs to run; without one, Delete removes the objects.
func (m Maker) MakeSnapshot(ctx context.Context, s SnapshotSpec) (*Snapshot, error) {
	made, err := m.makeSnapshot(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("make snapshot %q of volume %q: %w", s.Name, s.Of.Name, err)
	}
	return made, nil
}

func (m Maker) makeSnapshot(ctx context.Context, s SnapshotSpec) (*Snapshot, error) {
	if m.Snapshots == nil {
		return nil, errors.New("the maker has no client for snapshots")
	}
	pv, err := s.Of.PV(ctx)
	switch {
	case err != nil:
		return nil, err
	case pv == nil:
		return nil, errors.New("its PV is gone")
	}
	taken, err := m.CSI.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: m.Namespace + "-" + s.Name,
		SourceVolumeId: s.Of.Handle})
	if err != nil {
		return nil, err
	}
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &s.Of.ClaimName}},
	}
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-" + m.Namespace + "-" + s.Name},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: m.Driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			Source:           snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &s.Of.Handle},
			SourceVolumeMode: pv.Spec.VolumeMode,
		},
	}
	setReady(snapshot, content, taken.GetSnapshot())
	if s.Change != nil {
		s.Change(snapshot, content)
	}
	return m.storeSnapshot(ctx, snapshot, content, taken.GetSnapshot().GetSnapshotId())
}

// setReady writes the status that the snapshotter takes from the driver.
func setReady(snapshot *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent, taken *csi.Snapshot) {
	ready, handle, bytes := taken.GetReadyToUse(), taken.GetSnapshotId(), taken.GetSizeBytes()
	at := taken.GetCreationTime().AsTime()
	nanoseconds := at.UnixNano()
	content.Status = &snapshotv1.VolumeSnapshotContentStatus{
		SnapshotHandle: &handle, RestoreSize: &bytes, ReadyToUse: &ready, CreationTime: &nanoseconds,
	}
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{
		BoundVolumeSnapshotContentName: &content.Name, ReadyToUse: &ready,
		RestoreSize: resource.NewQuantity(bytes, resource.BinarySI), CreationTime: &metav1.Time{Time: at},
	}
}

// storeSnapshot stores the snapshot first, for its content names its UID. Each status is a write of its own.
func (m Maker) storeSnapshot(ctx context.Context, snapshot *snapshotv1.VolumeSnapshot,
	content *snapshotv1.VolumeSnapshotContent, handle string) (*Snapshot, error) {
	snapshots, contents := m.Snapshots.VolumeSnapshots(m.Namespace), m.Snapshots.VolumeSnapshotContents()
	stored, err := snapshots.Create(ctx, snapshot, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if content.Spec.VolumeSnapshotRef.UID == "" {
		content.Spec.VolumeSnapshotRef = v1.ObjectReference{
			APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot", Namespace: stored.Namespace,
			Name: stored.Name, UID: stored.UID,
		}
	}
	storedContent, err := contents.Create(ctx, content, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	storedContent.Status = content.Status
	if _, err := contents.UpdateStatus(ctx, storedContent, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	stored.Status = snapshot.Status
	if _, err := snapshots.UpdateStatus(ctx, stored, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	return &Snapshot{maker: m, Name: stored.Name, Content: storedContent.Name, Handle: handle}, nil
}

// Delete removes the objects and has the driver delete its snapshot. Missing objects are no error.
func (s *Snapshot) Delete(ctx context.Context) error {
	err := s.maker.Snapshots.VolumeSnapshots(s.maker.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})
	if err == nil || apierrors.IsNotFound(err) {
		err = s.maker.Snapshots.VolumeSnapshotContents().Delete(ctx, s.Content, metav1.DeleteOptions{})
	}
	if err == nil || apierrors.IsNotFound(err) {
		_, err = s.maker.CSI.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: s.Handle})
	}
	if err != nil {
		return fmt.Errorf("delete snapshot %q: %w", s.Name, err)
	}
	return nil
}

// InFlight returns the entries of a driver's in-flight log by the names of their volumes, from the Leases of a
// namespace. An unreadable entry is an error.
func InFlight(ctx context.Context, client kubernetes.Interface, namespace, driver string) (map[string]inflight.Located,
	error) {
	shards, err := client.CoordinationV1().Leases(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: inflight.LabelLog + "=true"})
	if err != nil {
		return nil, fmt.Errorf("list the Leases of the in-flight log: %w", err)
	}
	entries, problems := inflight.Locate(shards.Items, func(of string) bool { return of == driver })
	of := map[string]inflight.Located{}
	if len(problems) > 0 {
		return nil, fmt.Errorf("read the in-flight log: %s", problems[0])
	}
	for _, e := range entries {
		of[e.Volume] = e
	}
	return of, nil
}
