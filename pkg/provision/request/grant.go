package request

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

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
		return g.Namespace == source.Namespace &&
			g.allows(f.Claim, ref)
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
