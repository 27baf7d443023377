package request

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Source is what is known about where the claim's data come from. Only what Need names is looked
// at.
type Source struct {
	// Snapshot is the VolumeSnapshot, nil if it does not exist. Unserved: it could not be read, because
	// VolumeSnapshots are not read here.
	Snapshot *Snapshot
	Unserved bool
	// Claim is the claim to be cloned, nil if it does not exist; PV is the volume that its
	// spec.volumeName names, nil if that does not exist.
	Claim *v1.PersistentVolumeClaim
	PV    *v1.PersistentVolume
	// Grants are the ReferenceGrants of the source's namespace, if that is not the claim's.
	Grants []Grant
}

// SourceKind is the kind of object that a new volume is filled from. The zero value is an empty volume.
type SourceKind string

// The kinds of sources that a CSI driver fills a volume from.
const (
	SourceNone     SourceKind = ""
	SourceSnapshot SourceKind = "VolumeSnapshot"
	SourceClaim    SourceKind = "PersistentVolumeClaim"
)

// SourceRef names the object that a new volume is filled from. The zero value names none. It can be
// compared, and stored as JSON.
type SourceRef struct {
	Kind      SourceKind
	Namespace string
	Name      string
	// UID is empty where only the name is known.
	UID types.UID
}

// SourceOf returns the source that a claim names in its dataSource, or where that is empty in its
// dataSourceRef, without its UID. It is the zero value for a claim that names none, or one of a kind
// that drivers know nothing of. Whether a volume may be made from it is left to NewPlan.
func SourceOf(claim *v1.PersistentVolumeClaim) SourceRef {
	ref, _ := typedSourceOf(claim)
	source := SourceRef{Kind: kindOf(ref), Namespace: claim.Namespace, Name: ref.Name}
	if ref.Namespace != nil && *ref.Namespace != "" {
		source.Namespace = *ref.Namespace
	}
	if source.Kind == SourceNone {
		return SourceRef{}
	}
	return source
}

// typedSourceOf reads the claim's dataSource, and where that is empty its dataSourceRef. The API
// server fills each from the other where both can say it; a dataSourceRef alone is of another
// namespace, or of a kind that populators know.
func typedSourceOf(claim *v1.PersistentVolumeClaim) (ref v1.TypedObjectReference, found bool) {
	if source := claim.Spec.DataSource; source != nil {
		return v1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}, true
	}
	if claim.Spec.DataSourceRef != nil {
		return *claim.Spec.DataSourceRef, true
	}
	return v1.TypedObjectReference{}, false
}

func groupOf(ref v1.TypedObjectReference) string {
	if ref.APIGroup == nil {
		return ""
	}
	return *ref.APIGroup
}

func kindOf(ref v1.TypedObjectReference) SourceKind {
	switch group := groupOf(ref); {
	case ref.Kind == string(SourceSnapshot) && group == snapshotGroup:
		return SourceSnapshot
	case ref.Kind == string(SourceClaim) && group == "":
		return SourceClaim
	}
	return SourceNone
}

// name returns the source's namespace and name.
func (s SourceRef) name() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// snapshotGroup is the API group of VolumeSnapshot (kubernetes-csi/external-snapshotter).
const snapshotGroup = "snapshot.storage.k8s.io"

// sourceRef returns the claim's source, the zero value for none. It refuses one that no driver can fill
// a volume from.
func (f Facts) sourceRef() (SourceRef, error) {
	ref, found := typedSourceOf(f.Claim)
	if !found {
		return SourceRef{}, nil
	}
	group, source := groupOf(ref), SourceOf(f.Claim)
	switch {
	case ref.Namespace != nil && *ref.Namespace != "" && *ref.Namespace != f.Claim.Namespace && !f.Settings.CrossNamespace:
		return SourceRef{}, refuse(ReasonClaimUnsupported,
			"claim %q takes its data from namespace %q, and the feature gate CrossNamespaceVolumeDataSource of csi-reclaimer "+
				"is off; copy the source into the claim's namespace",
			f.claimName(), *ref.Namespace)
	case source.Kind == SourceNone && ref.Kind == string(SourceSnapshot):
		return SourceRef{}, refuse(ReasonClaimInvalid, "claim %q names a VolumeSnapshot of API group %q; it has to be %s",
			f.claimName(), group, snapshotGroup)
	case source.Kind == SourceNone:
		return SourceRef{}, refuse(ReasonLeftToPopulator,
			"claim %q takes its data from a %s %q of API group %q, which is left to a volume populator", f.claimName(),
			ref.Kind, ref.Name, group)
	case source.Name == "":
		return SourceRef{}, refuse(ReasonClaimInvalid, "claim %q names a %s without a name as the source of its data",
			f.claimName(), ref.Kind)
	}
	return source, nil
}

// withUID returns the source with the UID that was read of it.
func (s SourceRef) withUID(read Source) SourceRef {
	switch {
	case s.Kind == SourceSnapshot && read.Snapshot != nil:
		s.UID = read.Snapshot.UID
	case s.Kind == SourceClaim && read.Claim != nil:
		s.UID = read.Claim.UID
	}
	return s
}

// contentSource returns the source of the data for CreateVolume, nil for an empty volume.
func (f Facts) contentSource(source SourceRef) (*csi.VolumeContentSource, error) {
	if source == (SourceRef{}) {
		return nil, nil
	}
	// Before the source is checked: a claim that may not refer to it learns nothing about it.
	if err := f.checkGrant(source); err != nil {
		return nil, err
	}
	switch source.Kind {
	case SourceSnapshot:
		handle, err := f.snapshotHandle(source.name())
		if err != nil {
			return nil, err
		}
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: handle},
		}}, nil
	case SourceClaim:
		handle, err := f.cloneHandle(source.name())
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
