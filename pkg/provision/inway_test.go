package provision

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// pvInTheWay creates a PV with the name of the claim's PV.
func (w *world) pvInTheWay(driver string, claim types.UID) {
	_, err := w.client.CoreV1().PersistentVolumes().Create(w.t.Context(),
		&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"},
			Spec: v1.PersistentVolumeSpec{
				ClaimRef: &v1.ObjectReference{UID: claim},
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver,
					VolumeHandle: "in the way"}},
			}}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) clearTheWay() {
	w.deletePV()
}

// The deletion of the other PV is noticed immediately.
func TestForeignPVWithTheClaimsNameIsNotUsed(t *testing.T) {
	w := newWorld(t)
	w.pvInTheWay(driverName, "u0")
	events := record.NewFakeRecorder(100)
	w.make(Config{Events: events}).waitsLong().start()
	w.makeClaim()
	<-events.Events
	if len(w.recorded()) > 0 {
		t.Errorf("records: %q", w.recorded())
	}
	w.clearTheWay()
	w.wait("it is provisioned", w.provisioned)
}

// The cache shows no PVs of other drivers, so such a PV is found only when the claim's own PV is stored.
func TestAnotherDriversPVInTheWay(t *testing.T) {
	for name, of := range map[string]types.UID{"for another claim": "u0", "for this claim": "u1"} {
		inTheWay := func(t *testing.T) *world {
			w := newWorld(t)
			w.pvInTheWay("another.example.com", of)
			w.start(Config{})
			w.makeClaim()
			w.wait("it was found twice", func() bool { return w.count("read PV") > 1 })
			if w.count("close entry")+w.count("delete volume") > 0 {
				t.Errorf("records: %q", w.recorded())
			}
			return w
		}
		t.Run(name+", goes", func(t *testing.T) {
			w := inTheWay(t)
			w.clearTheWay()
			w.wait("the claim is provisioned", w.provisioned)
			if len(w.onDisk()) != 1 || w.pv().Spec.CSI.Driver != driverName {
				t.Errorf("volumes %v, PV %+v", w.onDisk(), w.pv())
			}
		})
		t.Run(name+", stays, and the claim goes", func(t *testing.T) {
			w := inTheWay(t)
			w.deleteClaim()
			n := w.count("create PV")
			w.wait("it is tried again", func() bool { return w.count("create PV") > n+1 })
			w.clearTheWay()
			w.wait("the volume has its PV", w.provisioned)
			if !w.knownVolumes() {
				t.Errorf("LEAK: %v", w.onDisk())
			}
		})
	}
}
