package order

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Source is what is known about where the claim's data come from. Only what Need names is looked
// at.
type Source struct {
	// Snapshot is the VolumeSnapshot, nil if it does not exist. Unserved: nobody could look, as
	// VolumeSnapshots are not read here.
	Snapshot *Snapshot
	Unserved bool
	// Claim is the claim to be cloned, nil if it does not exist; PV is the volume that its
	// spec.volumeName names, nil if that does not exist.
	Claim *v1.PersistentVolumeClaim
	PV    *v1.PersistentVolume
}

// sourceKind is how data come into a new volume. The zero value is an empty volume.
type sourceKind uint8

const (
	fromNothing sourceKind = iota
	fromSnapshot
	fromClaim
)

// sourceRef names what the data come from.
type sourceRef struct {
	kind sourceKind
	name types.NamespacedName
}

// snapshotGroup is the API group of VolumeSnapshot (kubernetes-csi/external-snapshotter).
const snapshotGroup = "snapshot.storage.k8s.io"

// sourceRef reads the claim's dataSource, and where that is empty its dataSourceRef. The API
// server fills each from the other where both can say it; a dataSourceRef alone is of another
// namespace, or of a kind that populators know.
func (f Facts) sourceRef() (sourceRef, error) {
	ref := v1.TypedObjectReference{}
	switch {
	case f.Claim.Spec.DataSource != nil:
		source := f.Claim.Spec.DataSource
		ref = v1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case f.Claim.Spec.DataSourceRef != nil:
		ref = *f.Claim.Spec.DataSourceRef
	default:
		return sourceRef{}, nil
	}
	group := ""
	if ref.APIGroup != nil {
		group = *ref.APIGroup
	}
	source := sourceRef{name: types.NamespacedName{Namespace: f.Claim.Namespace, Name: ref.Name}}
	switch {
	case ref.Namespace != nil && *ref.Namespace != "" && *ref.Namespace != f.Claim.Namespace:
		return sourceRef{}, refuse(ReasonClaimUnsupported, "claim %q takes its data from namespace %q, which is not supported; copy the source into the claim's namespace",
			f.claimName(), *ref.Namespace)
	case ref.Kind == "VolumeSnapshot" && group == snapshotGroup:
		source.kind = fromSnapshot
	case ref.Kind == "PersistentVolumeClaim" && group == "":
		source.kind = fromClaim
	case ref.Kind == "VolumeSnapshot":
		return sourceRef{}, refuse(ReasonClaimInvalid, "claim %q names a VolumeSnapshot of API group %q; it has to be %s", f.claimName(), group, snapshotGroup)
	default:
		return sourceRef{}, refuse(ReasonLeftToPopulator, "claim %q takes its data from a %s %q of API group %q, which is left to a volume populator", f.claimName(), ref.Kind, ref.Name, group)
	}
	if ref.Name == "" {
		return sourceRef{}, refuse(ReasonClaimInvalid, "claim %q names a %s without a name as the source of its data", f.claimName(), ref.Kind)
	}
	return source, nil
}

// contentSource returns what the driver is told about the data, nil for an empty volume.
func (f Facts) contentSource(source sourceRef) (*csi.VolumeContentSource, error) {
	switch source.kind {
	case fromSnapshot:
		handle, err := f.snapshotHandle(source.name)
		if err != nil {
			return nil, err
		}
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: handle},
		}}, nil
	case fromClaim:
		handle, err := f.cloneHandle(source.name)
		if err != nil {
			return nil, err
		}
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: handle},
		}}, nil
	default:
		return nil, nil
	}
}
