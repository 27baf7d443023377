package caches

import (
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

// TestChangedPVKeepsItsVolume looks whether a PV names a volume while the watch shows changes of that PV.
func TestChangedPVKeepsItsVolume(t *testing.T) {
	v := NewPVs(fake.NewClientset().CoreV1(), "disk.test", nil)
	pv := keptPV{name: "static", handle: "vol-1"}
	pvChanges{v}.Added(pv)
	goroutines.Hold(t, "a PV names the volume", func() bool { return v.Shared("vol-1", "pvc-1") },
		func() { pvChanges{v}.Updated(pv, pv) })
}
