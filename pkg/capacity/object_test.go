package capacity

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

func TestChangeConcernsSegmentsWithItsLabels(t *testing.T) {
	t.Parallel()
	here := WorkItem{"late", SegmentOf(map[string]string{"zone": "a", "rack": "1"})}
	there := WorkItem{"elsewhere", SegmentOf(map[string]string{"zone": "c", "rack": "2"})}
	for name, c := range map[string]struct {
		class string
		at    []map[string]string
		want  int // the items that it concerns, and here is one of them
	}{
		"the same":               {"other", []map[string]string{{"zone": "a", "rack": "1"}}, 1},
		"all of the zone":        {"other", []map[string]string{{"zone": "a"}}, 1},
		"the whole cluster":      {"other", []map[string]string{{}}, 2},
		"one of two zones":       {"other", []map[string]string{{"zone": "b"}, {"zone": "a"}}, 1},
		"the segment twice":      {"other", []map[string]string{{"rack": "1"}, {"zone": "a"}}, 1},
		"another zone":           {"late", []map[string]string{{"zone": "b"}}, 0},
		"another rack":           {"late", []map[string]string{{"zone": "a", "rack": "2"}}, 0},
		"another kind":           {"late", []map[string]string{{"host": "n"}}, 0},
		"no label's value":       {"late", []map[string]string{{"zone": "a,late"}}, 0},
		"a part of the rack":     {"late", []map[string]string{{"zone": "a", "rack": "1", "host": "n"}}, 0},
		"the class":              {"late", nil, 1},
		"another class":          {"other", nil, 0},
		"a class without a name": {"", nil, 0},
	} {
		m := newTracker()
		m.asking(here)
		m.asking(there)
		got, concerned := m.markStale(c.class, c.at), c.want > 0
		if len(got) != c.want || slices.Contains(got, here) != concerned || m.records[here].stale != concerned {
			t.Errorf("%s: %v, stale: %v", name, got, m.records[here].stale)
		}
		m.forget(here)
		if m.forget(there); len(m.groups) > 0 {
			t.Errorf("%s: items that are gone are in the groups %v", name, m.groups)
		}
	}
}

// A volume of one node visits the items of that node, however many nodes and zones the cluster has.
func TestChangeVisitsOnlyItemsOfItsSegment(t *testing.T) {
	t.Parallel()
	const classes = 3
	at := func(host int) Segment {
		return SegmentOf(map[string]string{"host": strconv.Itoa(host), "zone": strconv.Itoa(host % 2)})
	}
	for _, n := range []int{100, 1_000, 5_000} {
		m := newTracker()
		for host := range n {
			for class := range classes {
				m.answered(WorkItem{strconv.Itoa(class), at(host)}, Capacity{}, time.Unix(1e9, 0), true)
			}
		}
		// Only a search of all items finds this one.
		m.records[WorkItem{"unlisted", at(7)}] = record{}
		if got := len(slices.Collect(m.some(at(7).labels()))); got != classes {
			t.Errorf("%d nodes: %d items are visited for one node", n, got)
		}
		if got := m.markStale("0", []map[string]string{at(7).Labels()}); len(got) != classes {
			t.Errorf("%d nodes: a change at one node concerns %v", n, got)
		}
		if got := m.markStale("0", nil); len(got) != n {
			t.Errorf("%d nodes: a change of a class concerns %d items", n, len(got))
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
