package provision

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

var _ PVLister = reclaim.PVs{}

func TestOwnVolumes(t *testing.T) {
	w := newWorld(t)
	p := w.start(Config{}).provisioner
	pvs, volumes := w.client.CoreV1().PersistentVolumes(), p.volumes
	add := func(name, driver, handle string, claim types.UID) {
		_, err := pvs.Create(t.Context(), &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.PersistentVolumeSpec{
				ClaimRef: &v1.ObjectReference{UID: claim},
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver,
					VolumeHandle: handle}},
			}}, metav1.CreateOptions{})
		w.must(err)
	}
	var told []string
	news := newsOf(volumes)
	next := func() { told = append(told, <-news) }
	add("foreign", "another.example.com", "vol-1", "u9")
	add("a", driverName, "vol-1", "u1")
	next()
	if pv, found := volumes.Get("a"); !found || pv.Driver != driverName || pv.Handle != "vol-1" ||
		pv.Claim.UID != "u1" || pv.Terminating {
		t.Errorf("a is %+v, %v", pv, found)
	}
	if _, found := volumes.Get("foreign"); found {
		t.Error("another driver's PV is kept")
	}
	if volumes.Shared("vol-1", "a") {
		t.Error("its own PV, or another driver's, is taken for a second one")
	}
	add("b", driverName, "vol-1", "u2")
	next()
	if !volumes.Shared("vol-1", "a") || !volumes.Shared("vol-1", "b") || !volumes.Shared("vol-1", "c") ||
		!volumes.Shared("VOL-1", "a") || volumes.Shared("vol-2", "a") {
		t.Error("two PVs of one volume do not know of each other")
	}
	w.must(pvs.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	next()
	if volumes.Shared("vol-1", "a") || !volumes.Shared("vol-1", "c") {
		t.Error("a PV that is gone shares a volume")
	}
	if want := []string{"a of u1 true", "b of u2 true", "b of u2 false"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestOwnVolumesOfANode(t *testing.T) {
	w := newWorld(t)
	p := w.start(onNode("n1")).provisioner
	news := newsOf(p.volumes)
	for _, node := range []string{"n2", "n1"} {
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "on-" + node}, Spec: v1.PersistentVolumeSpec{
			NodeAffinity: affinityTo(node),
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName,
				VolumeHandle: "vol-1"}},
		}}
		_, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
		w.must(err)
	}
	if told := <-news; told != "on-n1 of  true" {
		t.Errorf("told of %q", told)
	}
	if _, found := p.volumes.Get("on-n2"); found || p.volumes.Shared("vol-1", "on-n1") {
		t.Error("another node's PV is kept")
	}
}

// newsOf returns the PVs that followers are called with, and whether the cache shows them at that moment.
func newsOf(volumes PVLister) <-chan string {
	news := make(chan string, 10)
	volumes.Follow(func(pv volume.PV) {
		shown := "false"
		if _, found := volumes.Get(pv.Name); found {
			shown = "true"
		}
		news <- pv.Name + " of " + string(pv.Claim.UID) + " " + shown
	})
	return news
}
