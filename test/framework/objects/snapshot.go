package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
