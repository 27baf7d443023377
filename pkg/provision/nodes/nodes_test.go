package nodes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const driver, zone = "disk.csi.example.com", "topology.example.com/zone"

// nodes is an API server whose watches show only the changes that the test shows.
type nodes struct {
	t       *testing.T
	client  *fake.Clientset
	changes map[string]*watch.RaceFreeFakeWatcher // by resource
	watches atomic.Int32
}

func newNodes(t *testing.T, objects ...runtime.Object) (*nodes, *Lister) {
	t.Helper()
	n := &nodes{t: t, client: fake.NewClientset(objects...), changes: map[string]*watch.RaceFreeFakeWatcher{
		"nodes": watch.NewRaceFreeFake(), "csinodes": watch.NewRaceFreeFake()}}
	n.client.PrependWatchReactor("*", func(a k8stesting.Action) (bool, watch.Interface, error) {
		n.watches.Add(1)
		return true, n.changes[a.GetResource().Resource], nil
	})
	return n, NewForClient(n.client, driver)
}

func node(name, version, at string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version,
		Labels: map[string]string{zone: at}}}
}

func csiNode(name string, drivers ...string) *storagev1.CSINode {
	c := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "2"}}
	for _, d := range drivers {
		c.Spec.Drivers = append(c.Spec.Drivers, storagev1.CSINodeDriver{Name: d, NodeID: name, TopologyKeys: []string{zone}})
	}
	return c
}

// watched runs the Lister until the test ends.
func (n *nodes) watched(p *Lister) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Watch(ctx) }()
	n.t.Cleanup(func() { cancel(); <-ended })
	n.wait("the nodes are known", p.Synced)
	n.wait("they are watched", func() bool { return n.watches.Load() >= 2 })
}

func (n *nodes) wait(what string, reached func() bool) {
	n.t.Helper()
	n.t.Logf("waiting until %s", what) // shown with -v
	for !reached() {
		time.Sleep(time.Millisecond)
	}
}

// read returns the objects that were read live.
func (n *nodes) read() string {
	var reads []string
	for _, action := range n.client.Actions() {
		if get, ok := action.(k8stesting.GetAction); ok && action.GetVerb() == "get" {
			reads = append(reads, action.GetResource().Resource+"/"+get.GetName())
		}
	}
	return strings.Join(reads, " ")
}

func TestNodesCombineLabelsAndRegistrations(t *testing.T) {
	n, p := newNodes(t, node("with", "1", "a"), node("without", "1", "a"), node("unregistered", "1", "a"),
		csiNode("with", "another.example.com", driver), csiNode("without", "another.example.com"))
	if _, err := p.Nodes(); !errors.Is(err, ErrUnread) {
		t.Errorf("before anything was read: %v", err)
	}
	n.watched(p)
	all, err := p.Nodes()
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for _, node := range all {
		on := node.Name == "with"
		if node.Labels[zone] != "a" || node.Registered != on || slices.Contains(node.Keys, zone) != on {
			t.Errorf("%+v", node)
		}
	}
}

func TestFollowersAreCalledForChangedSegmentsOnly(t *testing.T) {
	n, p := newNodes(t, node("one", "1", "a"))
	told := make(chan struct{}, 100)
	p.Follow(func() { told <- struct{}{} })
	n.watched(p)
	<-told
	for name, change := range map[string]func(){
		"it moves":              func() { n.changes["nodes"].Modify(node("one", "3", "b")) },
		"the driver gets there": func() { n.changes["csinodes"].Add(csiNode("one", driver)) },
	} {
		t.Logf("waiting to be told: %s", name)
		change()
		<-told
	}
	// The heartbeat is seen before the move that follows it.
	n.changes["nodes"].Modify(node("one", "4", "b"))
	n.changes["nodes"].Modify(node("one", "5", "c"))
	n.wait("the move is seen", func() bool {
		all, _ := p.Nodes()
		return slices.ContainsFunc(all, func(one topology.Node) bool { return one.Labels[zone] == "c" })
	})
	<-told
	if len(told) > 0 {
		t.Error("told of a heartbeat")
	}
}

func TestUnknownNodeIsReadLive(t *testing.T) {
	n, p := newNodes(t, node("known", "1", "a"), csiNode("known", driver))
	n.watched(p)
	// The node joins, and the watches show it later.
	for _, joined := range []runtime.Object{node("joined", "2", "b"), csiNode("joined", driver)} {
		must.OK(t, n.client.Tracker().Add(joined))
	}
	for _, c := range []struct{ name, zone, reads string }{
		{"known", "a", ""},
		{"joined", "b", "nodes/joined csinodes/joined"},
		{"gone", "", "nodes/joined csinodes/joined nodes/gone"},
	} {
		node, err := p.Node(t.Context(), c.name, nil)
		if err != nil || (node == nil) != (c.zone == "") || node != nil && (node.Labels[zone] != c.zone || !node.Registered) {
			t.Errorf("%s: %+v, %v", c.name, node, err)
		}
		if got := n.read(); got != c.reads {
			t.Errorf("after %s: read %q, want %q", c.name, got, c.reads)
		}
	}
	known := node("joined", "2", "z")
	if node, err := p.Node(t.Context(), "joined", known); err != nil || node.Labels[zone] != "z" {
		t.Errorf("what is known was read again: %+v, %v", node, err)
	}
}

func TestUnreadableNodeIsAnError(t *testing.T) {
	n, p := newNodes(t)
	n.watched(p)
	n.client.PrependReactor("get", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("not now")
	})
	if node, err := p.Node(t.Context(), "one", nil); err == nil || !strings.Contains(err.Error(), `read node "one"`) {
		t.Errorf("%+v, %v", node, err)
	}
}

func TestSecondWatchOnlyWaits(t *testing.T) {
	n, p := newNodes(t)
	n.watched(p)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Watch(ctx) }()
	cancel()
	<-ended
	n.changes["nodes"].Add(node("late", "9", ""))
	n.wait("the first watches on", func() bool { all, err := p.Nodes(); return err == nil && len(all) == 1 })
}

func TestAt(t *testing.T) {
	p := At("n1", map[string]string{"example.com/node": "n1"})
	if !p.Synced() || len(p.Permissions("nothing")) > 0 {
		t.Errorf("something is watched: %v, %+v", p.Synced(), p.Permissions("nothing"))
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	p.Watch(ctx) // ends with ctx
	nodes, err := p.Nodes()
	if err != nil || len(nodes) != 1 || nodes[0].Name != "n1" {
		t.Fatalf("nodes are %+v, %v", nodes, err)
	}
	if places := topology.Segments(nodes); len(places) != 1 || len(places[0]) != 1 ||
		places[0]["example.com/node"] != "n1" {
		t.Errorf("it is at %v", places)
	}
	if here, err := p.Node(t.Context(), "n1", nil); err != nil || here == nil || here.Name != "n1" {
		t.Errorf("n1 is %+v, %v", here, err)
	}
	if there, err := p.Node(t.Context(), "n2", nil); err != nil || there != nil {
		t.Errorf("n2 is %+v, %v", there, err)
	}
}
