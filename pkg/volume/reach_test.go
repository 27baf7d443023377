package volume

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// affinityTo parses terms such as "node In n1,zone In a" and "@metadata.name In n1", one each; nil without terms.
func affinityTo(terms ...string) *v1.VolumeNodeAffinity {
	if terms == nil {
		return nil
	}
	selector := &v1.NodeSelector{}
	for _, text := range terms {
		var term v1.NodeSelectorTerm
		for _, part := range strings.Split(text, ",") {
			words := strings.Fields(part)
			if len(words) < 2 {
				continue
			}
			key, field := strings.CutPrefix(words[0], "@")
			r := v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOperator(words[1]), Values: words[2:]}
			if field {
				term.MatchFields = append(term.MatchFields, r)
			} else {
				term.MatchExpressions = append(term.MatchExpressions, r)
			}
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return &v1.VolumeNodeAffinity{Required: selector}
}

func TestReach(t *testing.T) {
	one := Node{Name: "n1", Segments: map[string]string{"node": "n1"}}
	two := Node{Name: "n1", Segments: map[string]string{"zone": "a", "node": "n1"}}
	cases := map[string]struct {
		node  Node
		terms []string
		want  Reach
	}{
		"the driver's segment":                              {one, []string{"node In n1"}, ReachHere},
		"all of its segments":                               {two, []string{"node In n1,zone In a"}, ReachHere},
		"the same place twice":                              {one, []string{"node In n1", "node In n1"}, ReachHere},
		"another node":                                      {one, []string{"node In n2"}, ReachElsewhere},
		"one of the segments is another":                    {two, []string{"node In n2,zone In a"}, ReachElsewhere},
		"several other nodes":                               {one, []string{"node In n2 n3", "node In n4"}, ReachElsewhere},
		"another node, and an unknown label":                {one, []string{"node In n2,disk In ssd"}, ReachElsewhere},
		"not on this node":                                  {one, []string{"node NotIn n1"}, ReachElsewhere},
		"only where the driver is not":                      {one, []string{"node DoesNotExist"}, ReachElsewhere},
		"another node, by its name":                         {one, []string{"@metadata.name In n2"}, ReachElsewhere},
		"a term that selects nothing":                       {one, []string{""}, ReachElsewhere},
		"no affinity":                                       {one, nil, ReachUnclear},
		"an affinity without terms":                         {one, []string{}, ReachUnclear},
		"this node and another, in one term":                {one, []string{"node In n1 n2"}, ReachUnclear},
		"this node and another, in two terms":               {one, []string{"node In n1", "node In n2"}, ReachUnclear},
		"fewer segments than the driver has":                {two, []string{"zone In a"}, ReachUnclear},
		"more than the driver's segments":                   {one, []string{"node In n1,disk In ssd"}, ReachUnclear},
		"in words that are not the driver's":                {one, []string{"kubernetes.io/hostname In n1"}, ReachUnclear},
		"this node's name in words that are not the driver": {one, []string{"@metadata.name In n1"}, ReachUnclear},
		"a field that is not the node's name":               {one, []string{"@metadata.other In n2"}, ReachUnclear},
		"the driver's segment and the node's name":          {one, []string{"node In n1,@metadata.name In n1"}, ReachUnclear},
		"not on another node":                               {one, []string{"node NotIn n2"}, ReachUnclear},
		"wherever the driver is":                            {one, []string{"node Exists"}, ReachUnclear},
		"an unknown operator":                               {one, []string{"node Gt 1"}, ReachUnclear},
		"a node without segments has nothing for itself":    {Node{Name: "n1"}, []string{"node In n1"}, ReachUnclear},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.node.Reach(affinityTo(c.terms...)); got != c.want {
				t.Errorf("Reach = %d, want %d", got, c.want)
			}
			pv := Of(&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: affinityTo(c.terms...)}})
			if c.node.Excludes(pv) && c.want != ReachElsewhere {
				t.Errorf("affinity %q excludes the node, and Reach is %d", pv.Affinity, c.want)
			}
		})
	}
}

// An affinity without required terms leaves the reach unclear.
func TestReachOfEmptyAffinity(t *testing.T) {
	o := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: &v1.VolumeNodeAffinity{}}}
	if pv := At(&Node{Name: "n1", Segments: map[string]string{"node": "n1"}}, o); pv.Reach != ReachUnclear {
		t.Errorf("Reach = %d", pv.Reach)
	}
}

func TestExcludes(t *testing.T) {
	node := Node{Name: "n1", Segments: map[string]string{"zone": "a", "node": "n1"}}
	for _, c := range []struct {
		terms []string
		want  bool
	}{
		{[]string{"node In n2,zone In a"}, true}, {[]string{"node In n2", "zone In b"}, true},
		{[]string{"node In n1,zone In a"}, false}, {[]string{"node In n2", "node In n1"}, false},
		{[]string{"disk In ssd"}, false}, {nil, false}, {[]string{"@metadata.name In n1", "node In n2"}, false},
	} {
		pv := Of(&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: affinityTo(c.terms...)}})
		if got := node.Excludes(pv); got != c.want {
			t.Errorf("%q: %v", c.terms, got)
		}
	}
}
