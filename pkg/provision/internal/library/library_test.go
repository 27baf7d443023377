package library

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// TestTheLibraryCreatesNoPV: its CREATE is answered with the PV that is stored, or, once the watch has shown that, with
// the PV that the library sent.
func TestTheLibraryCreatesNoPV(t *testing.T) {
	client, assumed := fake.NewClientset(), caches.NewAssumed()
	pvs := libraryClient{client, assumed}.CoreV1().PersistentVolumes()
	sent := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"}}
	stored := sent.DeepCopy()
	stored.UID = "stored"
	assumed.Expect("pvc-u1", "u1")
	assumed.Put(stored)
	got, err := pvs.Create(t.Context(), sent, metav1.CreateOptions{})
	if err != nil || got.UID != "stored" || got == stored {
		t.Errorf("got %v, %v; want a copy of the stored PV", got, err)
	}
	assumed.Drop(volume.Of(stored))
	if got, err := pvs.Create(t.Context(), sent, metav1.CreateOptions{}); err != nil || got != sent {
		t.Errorf("got %v, %v; want the PV that was sent", got, err)
	}
	if actions := client.Actions(); len(actions) > 0 {
		t.Errorf("the API server was called: %v", actions)
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
	if err := informer.GetStore().Add(&v1.PersistentVolume{}); err != nil || !informer.HasSynced() {
		t.Errorf("add: %v", err)
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
