package capacity

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSegmentRoundTrip(t *testing.T) {
	for _, segments := range []map[string]string{{}, {"zone": "a"}, {"zone": "a", "rack": "1"},
		{"example.com/host": "n.1_2-3", "z": ""}} {
		p := SegmentOf(segments)
		if got := p.Labels(); !maps.Equal(got, segments) {
			t.Errorf("%v became %q, and that %v", segments, p, got)
		}
		if got := segmentOf(&metav1.LabelSelector{MatchLabels: segments}); got != p {
			t.Errorf("the object of %q is at %q", p, got)
		}
	}
	for name, selector := range map[string]*metav1.LabelSelector{
		"none": nil,
		"an expression": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone",
			Operator: metav1.LabelSelectorOpExists}}},
	} {
		if got := segmentOf(selector); got != nowhere {
			t.Errorf("%s is taken for %q", name, got)
		}
	}
}

func TestWithin(t *testing.T) {
	here := SegmentOf(map[string]string{"zone": "a", "rack": "1"})
	for name, c := range map[string]struct {
		at   map[string]string
		want bool
	}{
		"the same":          {map[string]string{"zone": "a", "rack": "1"}, true},
		"all of the zone":   {map[string]string{"zone": "a"}, true},
		"another zone":      {map[string]string{"zone": "b"}, false},
		"another kind":      {map[string]string{"host": "n"}, false},
		"less than we know": {map[string]string{"zone": "a", "rack": "1", "host": "n"}, false},
	} {
		if got := here.within(c.at); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestObjectOursByLabels(t *testing.T) {
	ours := labelsOf("disk.example.com", "external-provisioner")
	for name, c := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"both labels": {map[string]string{LabelDriver: "disk.example.com", LabelManagedBy: "external-provisioner",
			"more": "x"}, true},
		"another driver's": {map[string]string{LabelDriver: "other.example.com", LabelManagedBy: "external-provisioner"},
			false},
		"another program's": {map[string]string{LabelDriver: "disk.example.com",
			LabelManagedBy: "external-provisioner-node-1"}, false},
		"one label": {map[string]string{LabelDriver: "disk.example.com"}, false},
		"no label":  {nil, false},
	} {
		o := newObject(WorkItem{"fast", "zone=a"}, left(1), ours, nil)
		o.Labels = c.labels
		if got := objectOf(o, ours); got.Ours != c.want {
			t.Errorf("%s: ours %v", name, got.Ours)
		}
	}
}

func TestObjectRoundTrip(t *testing.T) {
	ours, yes := labelsOf("disk.example.com", "external-provisioner"), true
	owner := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "driver", UID: "d1", Controller: &yes}
	for _, answer := range []Capacity{left(0), left(7), {Available: Size{7, true}, MaximumVolumeSize: Size{3, true}}} {
		for _, item := range []WorkItem{{"fast", ""}, {"slow", "rack=1,zone=a"}} {
			o := newObject(item, answer, ours, owner)
			if got := objectOf(o, ours); got.Item != item || got.Capacity != answer || !got.ownedBy(owner) || !got.Controlled {
				t.Errorf("%+v became %+v", item, got)
			}
			if o.NodeTopology == nil {
				t.Error("an object without topology, which is for no node")
			}
		}
	}
	if (Object{}).ownedBy(owner) || !(Object{}).ownedBy(nil) {
		t.Error("who owns an object without owners")
	}
}

func TestPatchPreconditions(t *testing.T) {
	yes := true
	owner := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "driver", UID: "d1", Controller: &yes}
	o := Object{Name: "csisc-a", UID: "u1", ResourceVersion: "7", Owned: true}
	for name, c := range map[string]struct {
		o        Object
		has, not []string
	}{
		"the capacity alone": {o, []string{`"uid":"u1"`, `"resourceVersion":"7"`, `"capacity":"4"`,
			`"maximumVolumeSize":null`}, []string{"ownerReferences"}},
		"the owner is missing": {Object{UID: "u1", ResourceVersion: "7"}, []string{`"uid":"d1"`, `"controller":true`},
			nil},
		"another is its controller": {Object{UID: "u1", ResourceVersion: "7", Controlled: true}, []string{`"uid":"d1"`},
			[]string{"controller"}},
	} {
		body, err := patchOf(c.o, left(4), owner)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.has {
			if !strings.Contains(string(body), text) {
				t.Errorf("%s: no %s in %s", name, text, body)
			}
		}
		for _, text := range c.not {
			if strings.Contains(string(body), text) {
				t.Errorf("%s: %s in %s", name, text, body)
			}
		}
	}
}
