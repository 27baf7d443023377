package library

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// TestTheLibraryWritesNothing: neither PVs nor Events.
func TestTheLibraryWritesNothing(t *testing.T) {
	client := fake.NewClientset()
	core := libraryClient{client}.CoreV1()
	if _, err := core.PersistentVolumes().Create(t.Context(), &v1.PersistentVolume{}, metav1.CreateOptions{}); err == nil {
		t.Error("a PV is created")
	}
	sink, event := &corev1.EventSinkImpl{Interface: core.Events("")}, &v1.Event{}
	if got, err := sink.Create(event); got != event || err != nil {
		t.Errorf("Create = %v, %v", got, err)
	}
	if got, err := sink.Patch(event, nil); got != event || err != nil {
		t.Errorf("Patch = %v, %v", got, err)
	}
	events := core.Events("")
	if got, err := events.CreateWithEventNamespaceWithContext(t.Context(), event); got != event || err != nil {
		t.Errorf("Create = %v, %v", got, err)
	}
	if got, err := events.PatchWithEventNamespaceWithContext(t.Context(), event, nil); got != event || err != nil {
		t.Errorf("Patch = %v, %v", got, err)
	}
	if actions := client.Actions(); len(actions) > 0 {
		t.Errorf("the API server was called: %v", actions)
	}
}

// TestEveryNodeIsFound: the read of a node, and what follows from one that is gone, is not the library's.
func TestEveryNodeIsFound(t *testing.T) {
	own := &volume.Node{Name: "n1", Segments: map[string]string{"zone": "a"}}
	for name, want := range map[string]string{"n1": "a", "n2": ""} {
		node, err := nodeLister{node: own}.Get(name)
		if err != nil || node.Name != name || node.Labels["zone"] != want {
			t.Errorf("%s: %v, %v", name, node, err)
		}
	}
}

// TestPVsAreFoundByTheNameThatTheLibraryGives, and by no other.
func TestPVsAreFoundByTheNameThatTheLibraryGives(t *testing.T) {
	informer := newVolumeInformer(func() bool { return true }, func(claim types.UID) bool { return claim == "u1" })
	for name, want := range map[string]bool{"pvc-u1": true, "pvc-u2": false, "u1": false} {
		if _, found, err := informer.GetStore().GetByKey(name); found != want || err != nil {
			t.Errorf("%s: found %v, %v; want %v", name, found, err, want)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { t.Error("the library got an event of a PV") }}
	if _, err := informer.AddEventHandlerWithResyncPeriod(handler, 0); err != nil {
		t.Fatal(err)
	}
	if !informer.HasSynced() {
		t.Error("it is not synced")
	}
}

func TestGate(t *testing.T) {
	g := NewGate()
	if !g.Enter() || !g.BeginTurn("u1") || !g.BeginTurn("u1") || g.Count() != 2 {
		t.Fatalf("%d are inside, want 2: a claim counts once", g.Count())
	}
	g.EndTurn("u2") // has none
	g.Close()
	if g.Open() || g.Enter() || g.BeginTurn("u2") || g.Count() != 2 {
		t.Errorf("a closed gate lets somebody in: %d", g.Count())
	}
	empty := func() bool {
		select {
		case <-g.empty:
			return true
		default:
			return false
		}
	}
	g.Leave()
	if empty() {
		t.Error("the gate is empty while a claim has its turn")
	}
	g.EndTurn("u1")
	g.EndTurn("u1")
	if !empty() || g.Count() != 0 {
		t.Errorf("%d are inside after all have left", g.Count())
	}
	g.Wait()
}
