package request

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is what is read of a VolumeSnapshot (snapshot.storage.k8s.io/v1). This package does
// without that API's Go types, which only users of snapshots need.
type Snapshot struct {
	Namespace, Name string
	UID             types.UID
	// Deleting: metadata.deletionTimestamp is there.
	Deleting bool
	// Protected: SnapshotFinalizer is on it.
	Protected bool
	// Ready is status.readyToUse, false while that is not there.
	Ready bool
	// RestoreSize is status.restoreSize in bytes, nil if the driver does not report it.
	RestoreSize *int64
	// ContentName is status.boundVolumeSnapshotContentName, empty while that is not there.
	ContentName string
	// Content is the VolumeSnapshotContent of that name, nil if it does not exist.
	Content *SnapshotContent
}

// Bound reports whether the content that the snapshot names exists and names the snapshot. Only the content
// says whose snapshot it is: anyone who may write VolumeSnapshots could name any content.
func (s *Snapshot) Bound() bool {
	return s.Content != nil && s.Content.Name == s.ContentName && s.Content.SnapshotUID == s.UID &&
		s.Content.Snapshot == types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// SnapshotContent is what is read of a VolumeSnapshotContent.
type SnapshotContent struct {
	Name string
	// Driver is spec.driver.
	Driver string
	// Handle is status.snapshotHandle, empty while that is not there.
	Handle string
	// Snapshot and SnapshotUID are spec.volumeSnapshotRef.
	Snapshot    types.NamespacedName
	SnapshotUID types.UID
	// SourceMode is spec.sourceVolumeMode, nil if it is unknown.
	SourceMode *v1.PersistentVolumeMode
	// AllowModeChange is the annotation that AllowModeChangeAnnotation names, empty if it is
	// not there.
	AllowModeChange string
}

// SnapshotFinalizer keeps a VolumeSnapshot while volumes are restored from it. It is the stock
// provisioner's (external-provisioner 6.2 and newer, snapshotSourceProtectionFinalizer).
const SnapshotFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"

// AllowModeChangeAnnotation on a VolumeSnapshotContent with the value "true" lets a snapshot of a
// filesystem be restored as a device and the other way round (KEP-3141).
const AllowModeChangeAnnotation = "snapshot.storage.kubernetes.io/allow-volume-mode-change"

// snapshotHandle returns the handle of the snapshot to be restored: one of this driver that is ready and bound to
// its content, and not larger than what is asked for.
func (f Facts) snapshotHandle(name types.NamespacedName) (string, error) {
	if err := f.refuseSnapshot(name); err != nil {
		return "", err
	}
	if err := f.refuseContent(name); err != nil {
		return "", err
	}
	if err := f.refuseRestore(name); err != nil {
		return "", err
	}
	return f.Source.Snapshot.Content.Handle, nil
}

// refuseSnapshot returns why there is no snapshot to be restored, nil where there is one.
func (f Facts) refuseSnapshot(name types.NamespacedName) error {
	s := f.Source.Snapshot
	switch {
	case f.Source.Unserved:
		return refuse(ReasonSourceUnserved,
			"claim %q is to be made from VolumeSnapshot %q, and csi-reclaimer does not read VolumeSnapshots; create it "+
				"without a source, or clone the claim itself", f.claimName(), name)
	case s == nil || s.Namespace != name.Namespace || s.Name != name.Name:
		return refuse(ReasonSourceMissing, "VolumeSnapshot %q, which claim %q is made from, does not exist", name,
			f.claimName())
	case s.Deleting && !s.Protected:
		// Where the finalizer is there, some provisioner has begun to restore the snapshot before it was
		// deleted, maybe for this claim (external-provisioner #1448).
		return refuse(ReasonSourceDeleting,
			"VolumeSnapshot %q, which claim %q is made from, is being deleted; delete the claim too, or name another source",
			name, f.claimName())
	}
	return nil
}

// refuseContent returns why a snapshot that exists has no content of its own, nil where it has one.
func (f Facts) refuseContent(name types.NamespacedName) error {
	s := f.Source.Snapshot
	switch {
	case s.ContentName == "":
		return refuse(ReasonSourceNotReady,
			"VolumeSnapshot %q, which claim %q is made from, has no content yet; its own Events say why", name, f.claimName())
	case s.Content == nil || s.Content.Name != s.ContentName:
		return refuse(ReasonSourceMissing,
			"VolumeSnapshotContent %q of VolumeSnapshot %q, which claim %q is made from, does not exist", s.ContentName, name,
			f.claimName())
	case s.Content.Snapshot != name || s.Content.SnapshotUID != s.UID:
		// Anyone who may write VolumeSnapshots could name any content; only the content says
		// whose it is.
		return refuse(ReasonSourceNotReady,
			"VolumeSnapshotContent %q belongs to another snapshot than VolumeSnapshot %q, which claim %q is made from",
			s.ContentName, name, f.claimName())
	}
	return nil
}

// refuseRestore returns why the claim cannot be made from a snapshot and its content, nil where it can.
func (f Facts) refuseRestore(name types.NamespacedName) error {
	s := f.Source.Snapshot
	switch {
	case s.Content.Driver != f.Driver.Name:
		return refuse(ReasonSourceUnfit,
			"VolumeSnapshot %q, which claim %q is made from, is of CSI driver %q, and the claim's StorageClass of %q; take a "+
				"class of the same driver",
			name, f.claimName(), s.Content.Driver, f.Driver.Name)
	case !s.Ready || s.Content.Handle == "":
		return refuse(ReasonSourceNotReady, "VolumeSnapshot %q, which claim %q is made from, is not ready yet", name,
			f.claimName())
	case s.RestoreSize != nil && f.size() < *s.RestoreSize:
		return refuse(ReasonSourceUnfit,
			"claim %q asks for %d bytes and VolumeSnapshot %q needs %d; ask for as many at least", f.claimName(), f.size(),
			name, *s.RestoreSize)
	case !f.modeMayBe(s.Content):
		return refuse(ReasonSourceUnfit,
			"claim %q has volume mode %s and VolumeSnapshot %q is of %s; ask for the same, or have an administrator put the "+
				"annotation %s=true on VolumeSnapshotContent %q",
			f.claimName(), modeName(f.Claim.Spec.VolumeMode), name, *s.Content.SourceMode, AllowModeChangeAnnotation,
			s.ContentName)
	}
	return nil
}

// modeMayBe reports whether the claim's volume mode is that of the snapshot, or may differ. A
// filesystem that its owner can write as a device can crash the kernel that mounts it (KEP-3141).
// Contents that old snapshotters created do not say their mode and pass, as upstream.
func (f Facts) modeMayBe(content *SnapshotContent) bool {
	if f.Settings.AllowModeConversion || content.SourceMode == nil ||
		*content.SourceMode == modeName(f.Claim.Spec.VolumeMode) {
		return true
	}
	allowed, err := strconv.ParseBool(content.AllowModeChange)
	return err == nil && allowed
}
