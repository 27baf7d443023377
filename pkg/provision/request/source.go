package request

import (
	"cmp"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Source has the facts about the source of the claim's data. Only the objects in Need are used.
type Source struct {
	// Snapshot is the VolumeSnapshot, nil if it does not exist. Unserved means that VolumeSnapshots are not read at all.
	Snapshot *Snapshot
	Unserved bool
	// Claim is the claim to clone, nil if it does not exist. PV is the volume in its spec.volumeName, nil if that does not
	// exist.
	Claim *v1.PersistentVolumeClaim
	PV    *v1.PersistentVolume
	// Grants has the ReferenceGrants of the source's namespace, unless it is the claim's namespace.
	Grants []Grant
}

// SourceOf returns the source in a claim's dataSource or, if that is empty, its dataSourceRef, without its UID. It is
// the zero value for a claim that names none, or a kind that drivers do not support. NewPlan decides whether the source
// may be used.
func SourceOf(claim *v1.PersistentVolumeClaim) volume.SourceRef {
	ref, _ := typedSourceOf(claim)
	source := volume.SourceRef{Kind: kindOf(ref), Namespace: namespaceOf(ref, claim), Name: ref.Name}
	if source.Kind == volume.SourceNone {
		return volume.SourceRef{}
	}
	return source
}

// typedSourceOf reads the claim's dataSource or, if that is empty, its dataSourceRef. The API server fills each from
// the other if both can express it; a dataSourceRef alone is of another namespace, or of a kind for populators.
func typedSourceOf(claim *v1.PersistentVolumeClaim) (ref v1.TypedObjectReference, found bool) {
	if source := claim.Spec.DataSource; source != nil {
		return v1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}, true
	}
	if claim.Spec.DataSourceRef != nil {
		return *claim.Spec.DataSourceRef, true
	}
	return v1.TypedObjectReference{}, false
}

func groupOf(ref v1.TypedObjectReference) string { return ptr.Deref(ref.APIGroup, "") }

func namespaceOf(ref v1.TypedObjectReference, claim *v1.PersistentVolumeClaim) string {
	return cmp.Or(ptr.Deref(ref.Namespace, ""), claim.Namespace)
}

func kindOf(ref v1.TypedObjectReference) volume.SourceKind {
	switch group := groupOf(ref); {
	case ref.Kind == string(volume.SourceSnapshot) && group == snapshotGroup:
		return volume.SourceSnapshot
	case ref.Kind == string(volume.SourceClaim) && group == "":
		return volume.SourceClaim
	}
	return volume.SourceNone
}

func nameOf(s volume.SourceRef) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// snapshotGroup is the API group of VolumeSnapshot (kubernetes-csi/external-snapshotter).
const snapshotGroup = "snapshot.storage.k8s.io"

// sourceRef returns the claim's source, the zero value for none. It refuses a source that no driver supports.
func (f Facts) sourceRef() (volume.SourceRef, error) {
	ref, found := typedSourceOf(f.Claim)
	if !found {
		return volume.SourceRef{}, nil
	}
	group, source := groupOf(ref), SourceOf(f.Claim)
	switch {
	case namespaceOf(ref, f.Claim) != f.Claim.Namespace && !f.Settings.CrossNamespace:
		return volume.SourceRef{}, refuse(ReasonClaimUnsupported,
			"claim %q takes its data from namespace %q, and the feature gate CrossNamespaceVolumeDataSource of csi-reclaimer "+
				"is off; copy the source into the claim's namespace",
			f.claimName(), *ref.Namespace)
	case source.Kind == volume.SourceNone && ref.Kind == string(volume.SourceSnapshot):
		return volume.SourceRef{}, refuse(ReasonClaimInvalid,
			"claim %q names a VolumeSnapshot of API group %q; it has to be %s", f.claimName(), group, snapshotGroup)
	case source.Kind == volume.SourceNone:
		return volume.SourceRef{}, refuse(ReasonLeftToPopulator,
			"claim %q takes its data from a %s %q of API group %q, which is left to a volume populator", f.claimName(),
			ref.Kind, ref.Name, group)
	case source.Name == "":
		return volume.SourceRef{}, refuse(ReasonClaimInvalid, "claim %q names a %s without a name as the source of its data",
			f.claimName(), ref.Kind)
	}
	return source, nil
}

// withUID returns the source with the UID of the object that was read.
func withUID(s volume.SourceRef, read Source) volume.SourceRef {
	switch {
	case s.Kind == volume.SourceSnapshot && read.Snapshot != nil:
		s.UID = read.Snapshot.UID
	case s.Kind == volume.SourceClaim && read.Claim != nil:
		s.UID = read.Claim.UID
	}
	return s
}

// contentSource returns the source of the data for CreateVolume, nil for an empty volume.
func (f Facts) contentSource(source volume.SourceRef) (*csi.VolumeContentSource, error) {
	if source == (volume.SourceRef{}) {
		return nil, nil
	}
	// This check comes first: a claim that may not refer to the source learns nothing about it.
	if err := f.checkGrant(source); err != nil {
		return nil, err
	}
	switch source.Kind {
	case volume.SourceSnapshot:
		handle, err := f.snapshotHandle(nameOf(source))
		if err != nil {
			return nil, err
		}
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: handle},
		}}, nil
	case volume.SourceClaim:
		handle, err := f.cloneHandle(nameOf(source))
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

// cloneHandle returns the handle of the volume to clone. It must belong to a bound claim and to this driver, have the
// same volume mode, and not be larger than requested, while its class does not matter. A volume of the in-tree plugin
// that the driver replaces is known by its CSI name.
func (f Facts) cloneHandle(name types.NamespacedName) (string, error) {
	source, pv := f.Source.Claim, f.Source.PV
	switch {
	case source == nil || source.Namespace != name.Namespace || source.Name != name.Name:
		return "", refuse(ReasonSourceMissing, "claim %q has as its source claim %q, which does not exist", f.claimName(),
			name)
	case source.DeletionTimestamp != nil:
		return "", refuse(ReasonSourceDeleting,
			"claim %q has as its source claim %q, which is being deleted; delete the new claim too, or name another source",
			f.claimName(), name)
	case source.Status.Phase != v1.ClaimBound || source.Spec.VolumeName == "":
		return "", refuse(ReasonSourceNotReady, "claim %q has as its source claim %q, which is %s and has to be Bound",
			f.claimName(), name, source.Status.Phase)
	case pv == nil || pv.Name != source.Spec.VolumeName:
		return "", refuse(ReasonSourceMissing,
			"claim %q has as its source claim %q, whose PersistentVolume %q does not exist", f.claimName(), name,
			source.Spec.VolumeName)
	case !boundTo(pv, source):
		return "", refuse(ReasonSourceNotReady,
			"claim %q has as its source claim %q, whose PersistentVolume %q is not bound to it", f.claimName(), name, pv.Name)
	}
	if err := f.checkClone(source, pv); err != nil {
		return "", err
	}
	volume := volume.Of(pv)
	if volume.Driver != f.Driver.Name || volume.Handle == "" {
		return "", refuse(ReasonSourceUnfit,
			"claim %q has as its source claim %q, whose volume is not one of CSI driver %q; copy the data instead",
			f.claimName(), name, f.Driver.Name)
	}
	return volume.Handle, nil
}

func (f Facts) checkClone(source *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) error {
	size := source.Spec.Resources.Requests[v1.ResourceStorage]
	name := source.Namespace + "/" + source.Name
	switch {
	case f.size() < size.Value():
		return refuse(ReasonSourceUnfit,
			"claim %q requests %d bytes and has as its source claim %q with %d; request at least as many", f.claimName(),
			f.size(), name, size.Value())
	case modeName(f.Claim.Spec.VolumeMode) != modeName(pv.Spec.VolumeMode):
		return refuse(ReasonSourceUnfit,
			"claim %q has volume mode %s and has as its source claim %q with %s; request the same mode",
			f.claimName(), modeName(f.Claim.Spec.VolumeMode), name, modeName(pv.Spec.VolumeMode))
	}
	return nil
}

// boundTo reports whether the PV is bound to the claim.
func boundTo(pv *v1.PersistentVolume, claim *v1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	return ref != nil && ref.UID == claim.UID && ref.Namespace == claim.Namespace && ref.Name == claim.Name &&
		pv.Status.Phase == v1.VolumeBound
}

// Grant holds the relevant fields of a ReferenceGrant (gateway.networking.k8s.io/v1beta1), which lets objects of other
// namespaces refer to objects of its own (KEP-3294, "cross-namespace storage data sources").
type Grant struct {
	Namespace, Name string
	// From and To are spec.from and spec.to: every From may refer to every To.
	From []GrantFrom
	To   []GrantTo
}

// GrantFrom names a kind of objects in one namespace.
type GrantFrom struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
}

// GrantTo names a kind of objects in the grant's namespace or, with Name, a single object.
type GrantTo struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name,omitempty"`
}

// checkGrant refuses a source in another namespace, unless a ReferenceGrant of that namespace lets claims of this one
// refer to it.
func (f Facts) checkGrant(source volume.SourceRef) error {
	if source.Namespace == f.Claim.Namespace {
		return nil
	}
	ref, _ := typedSourceOf(f.Claim)
	if slices.ContainsFunc(f.Source.Grants, func(g Grant) bool {
		return g.Namespace == source.Namespace && g.allows(f.Claim, ref)
	}) {
		return nil
	}
	group := groupOf(ref)
	return refuse(ReasonSourceNotGranted,
		"claim %q takes its data from %s %q of namespace %q, and no ReferenceGrant there allows that; create one in "+
			"namespace %q "+
			"with from {group: \"\", kind: PersistentVolumeClaim, namespace: %s} and to {group: %q, kind: %s, name: %s}",
		f.claimName(), ref.Kind, source.Name, source.Namespace, source.Namespace, f.Claim.Namespace, group, ref.Kind,
		source.Name)
}

// allows reports whether the grant lets a claim refer to its source.
func (g Grant) allows(claim *v1.PersistentVolumeClaim, ref v1.TypedObjectReference) bool {
	from := GrantFrom{Kind: string(volume.SourceClaim), Namespace: claim.Namespace}
	return slices.Contains(g.From, from) && slices.ContainsFunc(g.To, func(to GrantTo) bool {
		return to.Group == groupOf(ref) && to.Kind == ref.Kind && (to.Name == "" || to.Name == ref.Name)
	})
}
