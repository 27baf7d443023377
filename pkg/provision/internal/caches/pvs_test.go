package caches

import (
	"testing"

	"k8s.io/client-go/kubernetes/fake"
)

// TestChangedPVKeepsItsVolume looks whether a PV names a volume while the watch shows changes of that PV.
func TestChangedPVKeepsItsVolume(t *testing.T) {
	v := NewPVs(fake.NewClientset().CoreV1(), "disk.test", nil)
	pv := keptPV{name: "static", handle: "vol-1"}
	pvChanges{v}.Added(pv)
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for range 50_000 {
			pvChanges{v}.Updated(pv, pv)
		}
	}()
	for tries := 0; ; tries++ {
		if !v.Shared("vol-1", "pvc-1") {
			t.Errorf("after %d looks, no PV names the volume", tries)
			break
		}
		select {
		case <-changed:
			return
		default:
		}
	}
	<-changed
}
