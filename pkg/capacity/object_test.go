package capacity

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	fakemetadata "k8s.io/client-go/metadata/fake"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
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
	ours, owner := labelsOf("disk.example.com", "external-provisioner"), ownerRef()
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
	owner := ownerRef()
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
		body := must.Get(patchOf(c.o, left(4), owner))(t)
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

// part returns the metadata of an object with the given owners.
func part(version, kind, name, uid string, controllers ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), OwnerReferences: controllers},
	}
}

func TestFindOwner(t *testing.T) {
	yes := true
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", UID: "u-set", Controller: &yes,
		BlockOwnerDeletion: &yes}
	deployment := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "driver", UID: "u-driver",
		Controller: &yes}
	other, strange := set, set
	other.UID, strange.Kind = "u-other", "Unheard"
	scheme := runtime.NewScheme()
	must.OK(t, metav1.AddMetaToScheme(scheme))
	objects := fakemetadata.NewSimpleMetadataClient(scheme,
		part("v1", "Pod", "pod", "u-pod", set), part("v1", "Pod", "alone", "u-alone"),
		part("v1", "Pod", "stale", "u-stale", other),
		part("v1", "Pod", "strange", "u-strange", strange), part("apps/v1", "ReplicaSet", "set", "u-set", deployment))
	kinds := &fakediscovery.FakeDiscovery{Fake: &fake.NewClientset().Fake}
	kinds.Resources = []*metav1.APIResourceList{{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
		{Name: "replicasets/status", Kind: "ReplicaSet", Namespaced: true}, {Name: "replicasets", Kind: "ReplicaSet",
			Namespaced: true}}}}
	find := owners{"ns", objects, kinds}.find
	for name, c := range map[string]struct {
		by   OwnedBy
		want string
		err  func(error) bool
	}{
		"the pod itself":               {OwnedBy{"pod", 0}, "v1 Pod pod u-pod", nil},
		"its controller":               {OwnedBy{"pod", 1}, "apps/v1 ReplicaSet set u-set", nil},
		"its controller's controller":  {OwnedBy{"pod", 2}, "apps/v1 Deployment driver u-driver", nil},
		"nothing controls the pod":     {OwnedBy{"alone", 1}, "", is(errUncontrolled)},
		"another set has the name now": {OwnedBy{"stale", 2}, "", is(errReplaced)},
		"an unknown kind":              {OwnedBy{"strange", 2}, "", is(errNoKind)},
		"the pod is not there":         {OwnedBy{"gone", 2}, "", apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			owner, err := find(context.Background(), c.by)
			if c.err != nil {
				if !c.err(err) {
					t.Errorf("%+v, %v", owner, err)
				}
				return
			}
			got := owner.APIVersion + " " + owner.Kind + " " + owner.Name + " " + string(owner.UID)
			if err != nil || got != c.want || owner.Controller == nil || !*owner.Controller || owner.BlockOwnerDeletion != nil {
				t.Errorf("%+v, %v", owner, err)
			}
		})
	}
}

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
