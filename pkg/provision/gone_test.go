package provision

import (
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// LeaseOf returns one Lease for all entries.
func (l *processLog) LeaseOf(string) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "driver", Name: "log-0",
		UID: "lease"}
}

// TestEventsOfAGoneClaimAreOnTheLease: the claim's namespace may be gone, too. Events of each entry are on the Lease,
// independently of the others' Events.
func TestEventsOfAGoneClaimAreOnTheLease(t *testing.T) {
	w, events := newWorld(t), &told{}
	w.failing(true, class(errclass.Uncertain))
	w.start(Config{Events: events})
	w.makeClaim()
	w.makeClaim(named("second", "u2"))
	w.wait("both volumes are made unseen", func() bool { return len(w.onDisk()) == 2 })
	w.wait("the claim is told", func() bool {
		return events.on("PersistentVolumeClaim ns/data", "ProvisioningOutcomeUnknown ")
	})
	if events.on("Lease") {
		t.Errorf("what concerns a claim that exists is told on the Lease: %q", events.events)
	}
	for _, name := range []string{"data", "second"} {
		w.deleteNamed(name)
	}
	for _, of := range []string{"Claim ns/data, which is gone, volume pvc-u1: ",
		"Claim ns/second, which is gone, volume pvc-u2: "} {
		w.wait("the Lease tells of it", func() bool {
			return events.on("Lease driver/log-0", "ProvisioningOutcomeUnknown "+of, "CreateVolume was called for this claim")
		})
	}
	w.failing(false, nil)
	w.wait("nothing is in flight", w.settled)
}

// TestEndOfThePVBeforeTheAnswer: the claim is offered while its name is worked on, and gets another volume.
func TestEndOfThePVBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	remove := func(w *world) {
		w.deletePV()
	}
	t.Run("the watch shows it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		told := make(chan struct{}, 4)
		p := w.start(Config{})
		p.provisioner.volumes.Follow(func(volume.PV) { told <- struct{}{} })
		w.created = sync.OnceFunc(func() {
			<-told
			remove(w)
			<-told
		})
		w.makeClaim()
		w.wait("it is provisioned again", func() bool { return w.count("create PV") == 2 && w.provisioned() })
	})
	t.Run("a list lacks it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		pvs := passed{past: &atomic.Bool{}, listed: new(func())}
		w.created = sync.OnceFunc(func() {
			remove(w)
			pvs.pass()
		})
		w.start(Config{PVs: pvs})
		w.makeClaim()
		w.wait("it is provisioned again", func() bool { return w.count("create PV") == 2 && w.provisioned() })
	})
}

// TestEndOfAPVThatWasOnlyRead covers a PV that no event shows.
func TestEndOfAPVThatWasOnlyRead(t *testing.T) {
	t.Parallel()
	store := func(w *world, handle string) {
		_, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"},
			Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: "u1"},
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName,
					VolumeHandle: handle}}}}, metav1.CreateOptions{})
		w.must(err)
	}
	for name, prepare := range map[string]func(w *world){
		"of an earlier process": func(w *world) {
			store(w, "vol-0")
			w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.CreationTimestamp = metav1.Unix(1, 0) })
		},
		"whose creation had no answer": func(w *world) {
			once := sync.OnceFunc(func() { store(w, "vol-pvc-u1") })
			w.call = func(string) error { once(); return nil }
			w.makeClaim()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			prepare(w)
			pvs := passed{past: &atomic.Bool{}, listed: new(func())}
			p := w.start(Config{PVs: pvs}).provisioner
			w.wait("the PV is known", func() bool { return p.stored("u1") && !p.tracker.knows("pvc-u1") })
			before := w.count("create volume")
			w.deletePV()
			pvs.pass()
			w.wait("it is provisioned again", func() bool { return w.count("create volume") > before && w.provisioned() })
		})
	}
}
