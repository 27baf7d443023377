package request

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// afar moves the source of a restored or cloned claim to namespace "shop", and names it by its reference alone, as the
// API server stores a reference with a namespace.
func afar(f *Facts) {
	shop := "shop"
	source := f.Claim.Spec.DataSource
	f.Claim.Spec.DataSource = nil
	f.Claim.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind,
		Name: source.Name, Namespace: &shop}
	if s := f.Source.Snapshot; s != nil {
		s.Namespace, s.Content.Snapshot.Namespace = shop, shop
	}
	if c := f.Source.Claim; c != nil {
		c.Namespace, f.Source.PV.Spec.ClaimRef.Namespace = shop, shop
	}
	f.Settings.CrossNamespace = true
}

func sourceless(f *Facts) { f.Source.Snapshot, f.Source.Claim = nil, nil }

// granted adds a ReferenceGrant in "shop" that lets claims of "team" refer to snapshots and claims there, with the
// changes.
func granted(changes ...func(*Grant)) func(*Facts) {
	return func(f *Facts) {
		g := Grant{Namespace: "shop", Name: "g", From: []GrantFrom{{Kind: "PersistentVolumeClaim", Namespace: "team"}},
			To: []GrantTo{{Group: snapshotGroup, Kind: "VolumeSnapshot"}, {Kind: "PersistentVolumeClaim"}}}
		for _, change := range changes {
			change(&g)
		}
		f.Source.Grants = append(f.Source.Grants, g)
	}
}

func from(change func(*GrantFrom)) func(*Grant) {
	return func(g *Grant) { change(&g.From[0]) }
}

func to(change func(*GrantTo)) func(*Grant) {
	return func(g *Grant) {
		for i := range g.To {
			change(&g.To[i])
		}
	}
}

// TestSourcesOfOtherNamespaces has the cases of external-provisioner (pkg/controller/controller_test.go,
// TestProvisionFromSnapshot and TestProvisionFromPVC, "xns").
func TestSourcesOfOtherNamespaces(t *testing.T) {
	refused := ReasonSourceNotGranted
	for kind, source := range map[string]struct {
		with func(*Facts)
		name string
		ref  volume.SourceRef
	}{
		"snapshot": {restored(), "snap",
			volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "shop", Name: "snap", UID: "s-1"}},
		"claim": {cloned(), "source",
			volume.SourceRef{Kind: volume.SourceClaim, Namespace: "shop", Name: "source", UID: "c-1"}},
	} {
		with, name := source.with, source.name
		t.Run(kind, func(t *testing.T) {
			empty := ""
			refusals(t, map[string]refusal{
				"granted":         {facts(with, afar, granted()), ""},
				"granted by name": {facts(with, afar, granted(to(func(g *GrantTo) { g.Name = name }))), ""},
				"granted by one of several": {facts(with, afar, granted(func(g *Grant) { g.From, g.To = nil, nil }),
					granted()), ""},
				"granted by one entry of several": {facts(with, afar,
					granted(func(g *Grant) { g.From = append([]GrantFrom{{Kind: "Gateway", Namespace: "x"}}, g.From...) })), ""},
				"of the same namespace":          {facts(with, func(f *Facts) { f.Settings.CrossNamespace = true }), ""},
				"of the same namespace, by name": {facts(with, sameNamespace("team")), ""},
				"of the same namespace, empty":   {facts(with, sameNamespace(empty)), ""},
				"no grant":                       {facts(with, afar), refused},
				"a grant of another namespace":   {facts(with, afar, granted(func(g *Grant) { g.Namespace = "team" })), refused},
				"a grant of the wrong from group": {facts(with, afar,
					granted(from(func(g *GrantFrom) { g.Group = "example.com" }))), refused},
				"a grant of the wrong from kind": {facts(with, afar, granted(from(func(g *GrantFrom) { g.Kind = "Gateway" }))),
					refused},
				"a grant of the wrong from": {facts(with, afar,
					granted(from(func(g *GrantFrom) { g.Namespace = "others" }))), refused},
				"a grant of the wrong to group": {facts(with, afar, granted(to(func(g *GrantTo) { g.Group = "example.com" }))),
					refused},
				"a grant of the wrong to kind": {facts(with, afar, granted(to(func(g *GrantTo) { g.Kind = "Secret" }))),
					refused},
				"a grant of the wrong to name": {facts(with, afar, granted(to(func(g *GrantTo) { g.Name = "x" }))), refused},
				"an empty grant": {facts(with, afar, granted(func(g *Grant) { g.From, g.To = nil, nil })),
					refused},
				"a grant without a source": {facts(with, afar, granted(func(g *Grant) { g.From = nil })), refused},
				"a grant to nothing":       {facts(with, afar, granted(func(g *Grant) { g.To = nil })), refused},
				"half of two grants": {facts(with, afar, granted(func(g *Grant) { g.From = nil }),
					granted(func(g *Grant) { g.To = nil })), refused},
				"the gate is off": {facts(with, afar, granted(),
					func(f *Facts) { f.Settings.CrossNamespace = false }), ReasonClaimUnsupported},
				"the source is not there": {facts(with, afar, granted(), sourceless), ReasonSourceMissing},
				// A claim that may not refer to the source is not told whether it exists.
				"no grant, and it is not there": {facts(with, afar, sourceless), refused},
				"no grant, and it is too large": {facts(with, afar, size("1Gi")), refused},
			})
			f := facts(with, afar, granted())
			need, err := Needs(f)
			if at := (types.NamespacedName{Namespace: "shop", Name: name}); err != nil || need.GrantsIn != "shop" ||
				need.Snapshot != at && need.SourceClaim != at {
				t.Errorf("needs %+v, %v", need, err)
			}
			o, err := NewPlan(f)
			if err != nil || o.Source != source.ref {
				t.Errorf("source %+v, %v; want %+v", o.Source, err, source.ref)
			}
			if need, err := Needs(facts(with)); err != nil || need.GrantsIn != "" {
				t.Errorf("needs %+v, %v, of a source of its own namespace", need, err)
			}
			_, err = NewPlan(facts(with, afar))
			for _, word := range []string{"ReferenceGrant", `namespace "shop"`, "namespace: team", string(source.ref.Kind),
				name} {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("%v: says nothing of %s", err, word)
				}
			}
		})
	}
	backup, shop := "example.com", "shop"
	refusals(t, map[string]refusal{
		"a kind for a populator, despite grants": {facts(func(f *Facts) {
			f.Settings.CrossNamespace = true
			f.Claim.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: &backup, Kind: "Backup", Name: "b", Namespace: &shop}
		}), ReasonLeftToPopulator},
	})
}

// sameNamespace names the source by its reference alone, with this namespace.
func sameNamespace(namespace string) func(*Facts) {
	return func(f *Facts) {
		f.Settings.CrossNamespace = true
		source := f.Claim.Spec.DataSource
		f.Claim.Spec.DataSource = nil
		f.Claim.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind,
			Name: source.Name, Namespace: &namespace}
	}
}
