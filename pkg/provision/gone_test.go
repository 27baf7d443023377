package provision

import (
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	for _, of := range []string{"Claim ns/data, which is bound or gone, volume pvc-u1: ",
		"Claim ns/second, which is bound or gone, volume pvc-u2: "} {
		w.wait("the Lease tells of it", func() bool {
			return events.on("Lease driver/log-0", "ProvisioningOutcomeUnknown "+of, "CreateVolume was called for this claim")
		})
	}
	w.failing(false, nil)
	w.wait("nothing is in flight", w.settled)
}

// TestEventsOfABoundClaimAfterARestart: the next process does not have the claim in its cache, and its driver does not
// answer any more. The claim is in use, so no Event may say that it is gone, or that it can be deleted.
func TestEventsOfABoundClaimAfterARestart(t *testing.T) {
	w, events := newWorld(t), &told{}
	w.madeUnseen().stop()
	w.makePV("by-hand", driverName, "vol-by-hand", refTo("data", "u1"))
	claim := w.claim()
	claim.Spec.VolumeName = "by-hand"
	_, err := w.client.CoreV1().PersistentVolumeClaims("ns").Update(t.Context(), claim, metav1.UpdateOptions{})
	w.must(err)
	w.start(Config{Events: events})
	w.wait("the Lease tells of it", func() bool {
		return events.on("Lease driver/log-0", "ProvisioningOutcomeUnknown Claim ns/data, which is bound or gone",
			"You can delete a claim that is not bound meanwhile")
	})
	for _, wrong := range []string{"which is gone", "delete the claim"} {
		if events.on("", wrong) {
			t.Errorf("%q is told of a bound claim: %q", wrong, events.with(""))
		}
	}
}

// TestVolumeInUseAfterARestart: the earlier process stored the PersistentVolume, and ended before it closed the entry.
// The driver could change the volume that pods use by now, so it is not called.
func TestVolumeInUseAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.madeUnseen().stop()
	w.makePV("pvc-u1", driverName, "vol-pvc-u1", refTo("data", "u1"))
	before := w.count("create volume")
	w.start(Config{})
	w.wait("nothing is in flight", w.settled)
	if n := w.count("create volume") - before; before == 0 || n != 0 {
		t.Errorf("CreateVolume was called %d times before the restart, and %d times after it; records %q", before, n,
			w.recorded())
	}
}

// TestEndOfThePVBeforeTheAnswer: the claim is offered while its name is worked on, and gets another volume.
func TestEndOfThePVBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	t.Run("the watch shows it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		told := make(chan struct{}, 4)
		p := w.start(Config{})
		p.provisioner.volumes.Follow(func(volume.PV) { told <- struct{}{} })
		w.created = sync.OnceFunc(func() {
			<-told
			w.deletePV()
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
			w.deletePV()
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
	store := func(w *world, handle string) { w.makePV("pvc-u1", driverName, handle, refTo("data", "u1")) }
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

// The deletion of the other PV is noticed immediately.
func TestForeignPVWithTheClaimsNameIsNotUsed(t *testing.T) {
	w, events := newWorld(t), &told{}
	w.makePV("pvc-u1", driverName, "in the way", refTo("data", "u0"))
	w.make(Config{Events: events}).waitsLong().start()
	w.makeClaim()
	w.wait("its owner is told", func() bool { return len(events.with("")) > 0 })
	if len(w.recorded()) > 0 {
		t.Errorf("records: %q", w.recorded())
	}
	w.deletePV()
	w.wait("it is provisioned", w.provisioned)
}

// The cache shows no PVs of other drivers, so such a PV is found only when the claim's own PV is stored.
func TestAnotherDriversPVInTheWay(t *testing.T) {
	for name, of := range map[string]types.UID{"for another claim": "u0", "for this claim": "u1"} {
		inTheWay := func(t *testing.T) *world {
			w := newWorld(t)
			w.makePV("pvc-u1", "another.example.com", "in the way", refTo("data", of))
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
			w.deletePV()
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
			w.deletePV()
			w.wait("the volume has its PV", w.provisioned)
			if !w.knownVolumes() {
				t.Errorf("LEAK: %v", w.onDisk())
			}
		})
	}
}
