package request

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Package topology tests the terms for given facts; this test covers the facts that it gets, and the handling of its
// errors.
func TestRequirement(t *testing.T) {
	noDriver := func(f *Facts) { f.Selected.Keys = nil }
	allowed := func(zone string) func(*Facts) {
		return func(f *Facts) {
			f.Class.AllowedTopologies = []v1.TopologySelectorTerm{
				{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{zone}}}},
			}
		}
	}
	cases := map[string]struct {
		f         Facts
		preferred string
		want      Reason
	}{
		"a driver without topology":                      {facts(), "", ""},
		"a driver without topology does not mind a node": {facts(annotation(volume.AnnSelectedNode, "x")), "", ""},
		"immediate": {facts(zones, func(f *Facts) { f.Claim.Name = "data-b-0" }),
			"b a", ""},
		"immediate, left to the driver": {facts(zones,
			func(f *Facts) { f.Settings.SkipImmediateTopology = true }), "", ""},
		"immediate, where the class allows": {facts(zones, allowed("b")), "b", ""},
		"immediate does not mind a node that was read": {facts(zones, allowed("b"),
			func(f *Facts) { f.Selected = &f.Nodes[0] }), "b", ""},
		"immediate, no node yet": {facts(zones, func(f *Facts) { f.Nodes = nil }), "",
			ReasonTopologyUnknown},
		"the node's place first": {facts(zones, late, selected("n-b")), "b a", ""},
		"the node's place only": {facts(zones, late, selected("n-b"),
			func(f *Facts) { f.Settings.StrictTopology = true }), "b", ""},
		"no node yet":      {facts(zones, late), "", ReasonNodeNotSelected},
		"the node is gone": {facts(zones, late, selected("n-x")), "", ReasonNodeUnfit},
		"another node was read": {facts(zones, late, selected("n-a"),
			annotation(volume.AnnSelectedNode, "n-b")), "", ReasonNodeUnfit},
		"the class does not allow the node": {facts(zones, late, selected("n-b"), allowed("a")), "",
			ReasonNodeUnfit},
		"the class allows other keys": {facts(zones, late, selected("n-b"), func(f *Facts) {
			f.Class.AllowedTopologies = []v1.TopologySelectorTerm{{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{
				{Key: "failure-domain", Values: []string{"b"}}}}}
		}), "", ReasonTopologyUnknown},
		"the driver is not on the node": {facts(zones, late, selected("n-b"), noDriver), "",
			ReasonNodeUnfit},
		"the driver reports no topology": {facts(zones, late, selected("n-b"), noDriver, func(f *Facts) {
			f.Nodes, f.Selected.Registered = nil, true
		}), "", ReasonTopologyUnknown},
		"the node's labels are on their way": {facts(zones, late, selected("n-b"),
			func(f *Facts) { f.Selected.Labels = nil }), "", ReasonTopologyUnknown},
		"a node selected under immediate binding is good": {facts(zones, selected("n-b")), "b a", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := NewPlan(c.f)
			var places []string
			for _, p := range o.Request.GetAccessibilityRequirements().GetPreferred() {
				places = append(places, p.Segments["zone"])
			}
			if got := strings.Join(places, " "); got != c.preferred || ReasonOf(err) != c.want {
				t.Errorf("preferred %q, %v", got, err)
			}
			if err == nil && o.MayReschedule != (c.f.Driver.topology() && c.f.selectedNode() != "") {
				t.Errorf("may reschedule: %v", o.MayReschedule)
			}
		})
	}
}

func TestNeeds(t *testing.T) {
	gold := "gold"
	cases := map[string]struct {
		f    Facts
		want Need
		err  Reason
	}{
		"a plain claim": {facts(), Need{}, ""},
		"a snapshot":    {facts(restored()), Need{Snapshot: namespaced("snap")}, ""},
		"a claim":       {facts(cloned()), Need{SourceClaim: namespaced("source")}, ""},
		"attributes": {facts(func(f *Facts) { f.Claim.Spec.VolumeAttributesClassName = &gold }),
			Need{AttributesClass: gold}, ""},
		"topology, immediate": {facts(zones), Need{Nodes: true}, ""},
		"topology, left to the driver": {facts(zones, func(f *Facts) { f.Settings.SkipImmediateTopology = true }),
			Need{}, ""},
		"topology, late": {facts(zones, late, selected("n-a")), Need{Nodes: true, SelectedNode: "n-a"}, ""},
		"topology, strict": {facts(zones, late, selected("n-a"),
			func(f *Facts) { f.Settings.StrictTopology = true }), Need{SelectedNode: "n-a"}, ""},
		"no topology, late":                {facts(late, annotation(volume.AnnSelectedNode, "n-a")), Need{}, ""},
		"a migrated class that has a zone": {facts(zones, migrated, parameter("zone", "us-central1-a")), Need{}, ""},
		"another's":                        {facts(annotation(volume.AnnProvisioner, "other")), Need{}, ReasonNotOurs},
		"an unsupported capability": {facts(restored(), func(f *Facts) { f.Driver.Controller = nil }), Need{},
			ReasonDriverIncapable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			blind := c.f
			blind.Attributes, blind.Source, blind.Selected, blind.Nodes = nil, Source{}, nil, nil
			got, err := Needs(blind)
			if got != c.want || ReasonOf(err) != c.err {
				t.Errorf("Needs = %+v, %v", got, err)
			}
			full, fullErr := Needs(c.f)
			if full != got || ReasonOf(fullErr) != ReasonOf(err) {
				t.Errorf("with everything read: %+v, %v", full, fullErr)
			}
		})
	}
}
