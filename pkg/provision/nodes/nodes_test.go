package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
)

const driver, zone = "disk.csi.example.com", "topology.example.com/zone"

// nodes is an API server with Nodes and CSINodes only.
type nodes struct {
	t  *testing.T
	mu sync.Mutex
	// objects has the objects by resource and name.
	objects map[string]map[string]metav1.Object
	watches map[string][]chan event
	reads   []string
	failing bool
}

type event struct {
	Type   string        `json:"type"`
	Object metav1.Object `json:"object"`
}

func newNodes(t *testing.T) (*nodes, *Lister) {
	t.Helper()
	n := &nodes{t: t, objects: map[string]map[string]metav1.Object{"nodes": {}, "csinodes": {}},
		watches: map[string][]chan event{}}
	server := httptest.NewServer(n)
	p, err := New(&rest.Config{Host: server.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}, driver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return n, p
}

func (n *nodes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	resource := path.Base(r.URL.Path)
	switch {
	case n.objects[resource] == nil:
		n.get(w, path.Base(path.Dir(r.URL.Path)), resource)
	case r.URL.Query().Get("watch") != "":
		n.watch(w, r, resource)
	default:
		n.list(w, resource)
	}
}

func (n *nodes) get(w http.ResponseWriter, resource, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads = append(n.reads, resource+"/"+name)
	object, found := n.objects[resource][name]
	var answer any = object
	switch {
	case n.failing:
		answer = &apierrors.NewInternalError(errors.New("not now")).ErrStatus
		w.WriteHeader(http.StatusInternalServerError)
	case !found:
		of := v1.Resource(resource)
		if resource == "csinodes" {
			of = storagev1.Resource(resource)
		}
		missing := apierrors.NewNotFound(of, name).ErrStatus
		missing.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		answer = missing
		w.WriteHeader(http.StatusNotFound)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (n *nodes) list(w http.ResponseWriter, resource string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var items []metav1.Object
	for _, object := range n.objects[resource] {
		items = append(items, object)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind":       map[string]string{"nodes": "NodeList", "csinodes": "CSINodeList"}[resource],
		"apiVersion": map[string]string{"nodes": "v1", "csinodes": "storage.k8s.io/v1"}[resource],
		"metadata":   metav1.ListMeta{ResourceVersion: "1"}, "items": items})
}

func (n *nodes) watch(w http.ResponseWriter, r *http.Request, resource string) {
	events := make(chan event, 100)
	n.mu.Lock()
	n.watches[resource] = append(n.watches[resource], events)
	n.mu.Unlock()
	flush := http.NewResponseController(w).Flush
	for _ = flush(); ; _ = flush() {
		select {
		case e := <-events:
			_ = json.NewEncoder(w).Encode(e)
		case <-r.Context().Done():
			return
		}
	}
}

// put creates or changes an object, and sends events to the watches.
func (n *nodes) put(resource string, object metav1.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.objects[resource][object.GetName()] = object
	for _, events := range n.watches[resource] {
		events <- event{"MODIFIED", object}
	}
}

func (n *nodes) node(name, version string, labels map[string]string) *v1.Node {
	return &v1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, Labels: labels}}
}

func (n *nodes) csiNode(name string, drivers ...string) *storagev1.CSINode {
	c := &storagev1.CSINode{TypeMeta: metav1.TypeMeta{Kind: "CSINode", APIVersion: "storage.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "2"}}
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
	n.wait("they are watched", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.watches["nodes"])*len(n.watches["csinodes"]) > 0
	})
}

func (n *nodes) wait(what string, reached func() bool) {
	n.t.Helper()
	n.t.Logf("waiting until %s", what) // shown with -v
	for !reached() {
		time.Sleep(time.Millisecond)
	}
}

func (n *nodes) read() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.reads, " ")
}

func TestNodesCombineLabelsAndRegistrations(t *testing.T) {
	n, p := newNodes(t)
	a := map[string]string{zone: "a"}
	n.put("nodes", n.node("with", "1", a))
	n.put("nodes", n.node("without", "1", a))
	n.put("nodes", n.node("unregistered", "1", a))
	n.put("csinodes", n.csiNode("with", "another.example.com", driver))
	n.put("csinodes", n.csiNode("without", "another.example.com"))
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
	n, p := newNodes(t)
	n.put("nodes", n.node("one", "1", map[string]string{zone: "a"}))
	told := make(chan struct{}, 100)
	p.Follow(func() { told <- struct{}{} })
	n.watched(p)
	<-told
	for name, change := range map[string]func(){
		"it moves":              func() { n.put("nodes", n.node("one", "3", map[string]string{zone: "b"})) },
		"the driver gets there": func() { n.put("csinodes", n.csiNode("one", driver)) },
	} {
		t.Logf("waiting to be told: %s", name)
		change()
		<-told
	}
	// The heartbeat is seen before the move that follows it.
	n.put("nodes", n.node("one", "4", map[string]string{zone: "b"}))
	n.put("nodes", n.node("one", "5", map[string]string{zone: "c"}))
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
	n, p := newNodes(t)
	n.put("nodes", n.node("known", "1", map[string]string{zone: "a"}))
	n.put("csinodes", n.csiNode("known", driver))
	n.watched(p)
	// The node joins, and the watches show it later.
	n.mu.Lock()
	n.objects["nodes"]["joined"], n.objects["csinodes"]["joined"] = n.node("joined", "2", map[string]string{zone: "b"}),
		n.csiNode("joined", driver)
	n.mu.Unlock()
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
	known := n.node("joined", "2", map[string]string{zone: "z"})
	if node, err := p.Node(t.Context(), "joined", known); err != nil || node.Labels[zone] != "z" {
		t.Errorf("what is known was read again: %+v, %v", node, err)
	}
}

func TestUnreadableNodeIsAnError(t *testing.T) {
	n, p := newNodes(t)
	n.watched(p)
	n.mu.Lock()
	n.failing = true
	n.mu.Unlock()
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
	n.put("nodes", n.node("late", "9", nil))
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
