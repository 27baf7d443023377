package request

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot holds the relevant fields of a VolumeSnapshot (snapshot.storage.k8s.io/v1). This package does not use that
// API's Go types, which only users of snapshots need.
type Snapshot struct {
	Namespace, Name string
	UID             types.UID
	// Deleting means that metadata.deletionTimestamp is set.
	Deleting bool
	// Protected means that the object has SnapshotFinalizer.
	Protected bool
	// Ready is status.readyToUse, false while unset.
	Ready bool
	// RestoreSize is status.restoreSize in bytes, nil if the driver does not report it.
	RestoreSize *int64
	// ContentName is status.boundVolumeSnapshotContentName, empty while unset.
	ContentName string
	// Content is the VolumeSnapshotContent of that name, nil if it does not exist.
	Content *SnapshotContent
}

// Bound reports whether the content of the snapshot exists and refers back to the snapshot. Only the content proves its
// snapshot, because every user who may write VolumeSnapshots could name any content.
func (s *Snapshot) Bound() bool {
	return s.Content != nil && s.Content.Name == s.ContentName && s.Content.SnapshotUID == s.UID &&
		s.Content.Snapshot == types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// SnapshotContent holds the relevant fields of a VolumeSnapshotContent.
type SnapshotContent struct {
	Name string
	// Driver is spec.driver.
	Driver string
	// Handle is status.snapshotHandle, empty while unset.
	Handle string
	// Snapshot and SnapshotUID are spec.volumeSnapshotRef.
	Snapshot    types.NamespacedName
	SnapshotUID types.UID
	// SourceMode is spec.sourceVolumeMode, nil if it is unknown.
	SourceMode *v1.PersistentVolumeMode
	// AllowModeChange is the value of the annotation AllowModeChangeAnnotation, empty if unset.
	AllowModeChange string
}

// SnapshotFinalizer keeps a VolumeSnapshot while volumes are restored from it. It is the stock provisioner's finalizer
// (external-provisioner 6.2 and newer, snapshotSourceProtectionFinalizer).
const SnapshotFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"

// CloningFinalizer has the same purpose for a claim that volumes are cloned from. It is the stock provisioner's, too.
const CloningFinalizer = "provisioner.storage.kubernetes.io/cloning-protection"

// AllowModeChangeAnnotation on a VolumeSnapshotContent with the value "true" allows a restore with another volume mode
// (KEP-3141).
const AllowModeChangeAnnotation = "snapshot.storage.kubernetes.io/allow-volume-mode-change"

// snapshotHandle returns the handle of the snapshot to restore. The snapshot has to belong to this driver, be ready and
// bound to its content, and not be larger than requested.
func (f Facts) snapshotHandle(name types.NamespacedName) (string, error) {
	for _, check := range []func(types.NamespacedName) error{f.refuseSnapshot, f.refuseContent, f.refuseRestore} {
		if err := check(name); err != nil {
			return "", err
		}
	}
	return f.Source.Snapshot.Content.Handle, nil
}

// refuseSnapshot returns an error if the snapshot cannot be read, does not exist or is being deleted.
func (f Facts) refuseSnapshot(name types.NamespacedName) error {
	s := f.Source.Snapshot
	switch {
	case f.Source.Unserved:
		return refuse(ReasonSourceUnserved,
			"claim %q has as its source VolumeSnapshot %q, and csi-reclaimer does not read VolumeSnapshots; create it without "+
				"a source, or clone the claim itself", f.claimName(), name)
	case s == nil || s.Namespace != name.Namespace || s.Name != name.Name:
		return refuse(ReasonSourceMissing, "VolumeSnapshot %q, which claim %q is made from, does not exist", name,
			f.claimName())
	case s.Deleting && !s.Protected:
		// With the finalizer, some provisioner began to restore the snapshot before it was deleted, perhaps for this claim
		// (external-provisioner #1448).
		return refuse(ReasonSourceDeleting,
			"VolumeSnapshot %q, which claim %q is made from, is being deleted; delete the claim too, or name another source",
			name, f.claimName())
	}
	return nil
}

// refuseContent returns an error if an existing snapshot has no content of its own.
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
		// Every user who may write VolumeSnapshots could name any content; only the content proves its snapshot.
		return refuse(ReasonSourceNotReady,
			"VolumeSnapshotContent %q belongs to another snapshot than VolumeSnapshot %q, which claim %q is made from",
			s.ContentName, name, f.claimName())
	}
	return nil
}

// refuseRestore returns an error if the snapshot's content cannot be restored for the claim.
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
			"claim %q requests %d bytes and VolumeSnapshot %q needs %d; request at least as many", f.claimName(), f.size(),
			name, *s.RestoreSize)
	case !f.modeMayBe(s.Content):
		return refuse(ReasonSourceUnfit,
			"claim %q has volume mode %s and VolumeSnapshot %q is of %s; request the same mode, or have an administrator put "+
				"the annotation %s=true on VolumeSnapshotContent %q",
			f.claimName(), modeName(f.Claim.Spec.VolumeMode), name, *s.Content.SourceMode, AllowModeChangeAnnotation,
			s.ContentName)
	}
	return nil
}

// modeMayBe reports whether the claim's volume mode is the snapshot's, or may differ. A filesystem that its owner can
// write as a block device can crash the kernel that mounts it (KEP-3141). As upstream, contents of old snapshotters,
// which do not record their mode, pass.
func (f Facts) modeMayBe(content *SnapshotContent) bool {
	if f.Settings.AllowModeConversion || content.SourceMode == nil ||
		*content.SourceMode == modeName(f.Claim.Spec.VolumeMode) {
		return true
	}
	allowed, err := strconv.ParseBool(content.AllowModeChange)
	return err == nil && allowed
}
