package provision

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/snapshottest"
)

// seesNoClaim waits until the process sees the end of the claim.
func (p *process) seesNoClaim() {
	p.t.Helper()
	p.wait("the end of the claim is seen", func() bool { return p.provisioner.claims.WholeByUID("u1") == nil })
}

// seesSourceTerminate waits until the process sees that the source is being deleted.
func (p *process) seesSourceTerminate() {
	p.t.Helper()
	p.wait("the source is seen to terminate", func() bool {
		source, found := p.provisioner.claims.Get("ns/source")
		return found && caches.IsTerminatingSource(source)
	})
}

// TestSettledEntryIsLeftToTheOperator covers a driver that never answers conclusively.
func TestSettledEntryIsLeftToTheOperator(t *testing.T) {
	w := newWorld(t)
	p := w.madeUnseen()
	w.deleteClaim()
	// Until then the claim exists for the provisioner, which may begin again.
	p.seesNoClaim()
	w.settle()
	w.wait("the entry leaves the log", w.settled)
	n := w.count("create volume")
	w.failing(false, nil)
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "u2" })
	w.wait("another claim is provisioned", func() bool { return w.count("create PV") == 1 })
	if w.count("create volume") != n+1 || w.pv() != nil {
		t.Errorf("the driver is asked for what was given up: %q", w.recorded())
	}
}

// TestSettledVolumeIsLeftToTheOperator covers volumes that the driver has named: the next try notices the settlement,
// and does nothing with the volume.
func TestSettledVolumeIsLeftToTheOperator(t *testing.T) {
	var holds atomic.Bool
	for name, hold := range map[string]func(*world){
		"its PV is refused": func(*world) {},
		"its PV's name is taken": func(w *world) {
			var once sync.Once
			w.call = func(volume string) error {
				if volume == "pvc-u1" {
					once.Do(func() { w.makePV("pvc-u1", "another.example.com", "in the way", refTo("data", "u0")) })
				}
				return nil
			}
		},
		"its deletion fails": func(w *world) {
			w.orders.spoil = func() error {
				if holds.Load() {
					return errLost
				}
				return nil
			}
			w.fail["delete volume"] = class(errclass.Uncertain)
		},
	} {
		t.Run(name, func(t *testing.T) {
			holds.Store(true)
			w := newWorld(t)
			hold(w)
			p := w.make(Config{})
			p.refusePV = func() error {
				if holds.Load() && w.call == nil {
					return apierrors.NewForbidden(v1.Resource("persistentvolumes"), "pvc-u1", errLost)
				}
				return nil
			}
			p.start()
			w.makeClaim()
			w.wait("the volume is made", func() bool { return len(w.onDisk()) == 1 })
			w.deleteClaim()
			p.seesNoClaim()
			w.settle()
			w.wait("the entry leaves the log", w.settled)
			n := w.count("create volume") + w.count("delete volume")
			holds.Store(false)
			w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "u2" })
			w.wait("another claim has its PV", func() bool { return w.pvNamed("pvc-u2") != nil })
			if pv := w.pv(); pv != nil && pv.Spec.ClaimRef.UID == "u1" || !slices.Contains(w.onDisk(), "vol-pvc-u1") {
				t.Errorf("volumes %v, PV %v", w.onDisk(), pv)
			}
			if got := w.count("create volume") + w.count("delete volume"); got != n+1 {
				t.Errorf("%d calls for another claim, want 1", got-n)
			}
		})
	}
}

// TestSettledCloneFreesItsSource: no event follows for the source, whatever read shows the settlement.
func TestSettledCloneFreesItsSource(t *testing.T) {
	for name, read := range map[string]func(*process){
		"the next try reads the log": func(p *process) {},
		"a read for another entry":   func(p *process) { p.log.readForAnother() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.makeSource()
			p := w.madeUnseenWith(Config{}, cloning)
			w.deleteNamed("source")
			w.deleteClaim()
			p.seesNoClaim()
			p.seesSourceTerminate()
			w.calls(2) // by then, nothing is queued for the source
			w.settle()
			read(p)
			w.wait("the source is gone", w.sourceGone)
		})
	}
}

// TestCloneSettledBeforeARestartFreesItsSource: the next process removes the entry at its take-over, and looks at the
// source before that is confirmed.
func TestCloneSettledBeforeARestartFreesItsSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.makeSource()
	p := w.madeUnseenWith(Config{}, cloning)
	w.deleteNamed("source")
	w.deleteClaim()
	p.stop()
	w.settle()
	next := w.make(Config{})
	next.log.asked = make(chan struct{})
	next.start()
	w.wait("the source is gone", w.sourceGone)
}

// restoredUnseen returns a world after the end of a process that restored a snapshot without an answer of the driver,
// for a claim that is gone.
func restoredUnseen(t *testing.T) (*world, *snapshottest.Snapshots) {
	t.Helper()
	w := newWorld(t)
	w.failing(true, class(errclass.Uncertain))
	shop := snapshottest.New(fresh())
	p := w.start(Config{Snapshots: shop})
	w.makeClaim(fromSnapshot())
	w.waitUnseen()
	w.deleteClaim()
	p.stop()
	return w, shop
}

// TestRestoreSettledBeforeARestartFreesItsSnapshot: the next process has not added the snapshot's finalizer.
func TestRestoreSettledBeforeARestartFreesItsSnapshot(t *testing.T) {
	t.Parallel()
	w, shop := restoredUnseen(t)
	w.settle()
	w.start(Config{Snapshots: shop})
	w.wait("the snapshot is free", func() bool { return !shop.Protected("snap") })
}

// TestEntryThatCanBeReadLater: a process that could not read the entry at its take-over inherits it then.
func TestEntryThatCanBeReadLater(t *testing.T) {
	t.Parallel()
	for name, settled := range map[string]bool{"it is finished": false, "an operator has settled it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, shop := restoredUnseen(t)
			w.hidden = "pvc-u1"
			w.failing(false, nil)
			n := w.count("create volume")
			next := w.start(Config{Snapshots: shop})
			w.wait("it works", next.provisioner.working)
			next.log.show(settled)
			w.wait("the snapshot is free, and nothing is in flight", func() bool {
				return !shop.Protected("snap") && w.settled()
			})
			if called := w.count("create volume") > n; called == settled || (w.pv() == nil) != settled {
				t.Errorf("the driver is called: %t, PV %v", called, w.pv())
			}
		})
	}
}

// settlesDuring settles the entry of the claim that goes, and has a read for another entry show that, during the call
// of CreateVolume with this number.
func (p *process) settlesDuring(number int, before, after func()) {
	calls := 0
	p.call = func(string) error {
		if calls++; calls < number {
			return errclass.Mark(errclass.Uncertain, errLost)
		}
		if calls == number {
			before()
			p.deleteClaim()
			p.seesNoClaim()
			p.settle()
			p.log.readForAnother()
			after()
		}
		return nil
	}
}

// TestVolumeNamedAfterItsSettlementIsKnown: its PV has the handle or, if that cannot be stored, an Event on the Lease.
func TestVolumeNamedAfterItsSettlementIsKnown(t *testing.T) {
	for _, refused := range []bool{false, true} {
		for number := range 2 {
			w, events := newWorld(t), &told{}
			p := w.make(Config{Events: events})
			p.refusePV = func() error {
				if refused {
					return apierrors.NewForbidden(v1.Resource("persistentvolumes"), "pvc-u1", errLost)
				}
				return nil
			}
			p.settlesDuring(number+1, func() {}, func() {})
			p.start()
			w.makeClaim()
			w.wait("the volume is known", func() bool {
				pv := w.pv()
				return !refused && pv != nil && pv.Spec.CSI.VolumeHandle == "vol-pvc-u1" ||
					refused && events.on("Lease driver/log-0", " InFlightEntrySettled ", `Volume "vol-pvc-u1".`)
			})
			w.wait("nothing is in flight", w.settled)
		}
	}
}

// TestSourceOfASettledEntryIsInUseDuringTheCall: the driver may still read it.
func TestSourceOfASettledEntryIsInUseDuringTheCall(t *testing.T) {
	w := newWorld(t)
	p := w.make(Config{})
	p.settlesDuring(2, func() { // the first has its request prepared in the same try
		w.deleteNamed("source")
		p.seesSourceTerminate()
	}, func() {
		p.provisioner.freeSource(context.Background(),
			volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "source"})
		if w.count("free source") > 0 {
			t.Error("the source is freed under the call")
		}
	})
	p.start()
	w.makeSource()
	w.makeClaim(cloning)
	w.wait("the source is gone", w.sourceGone)
}

// TestUnconfirmedRewriteIsFinished: the claim is gone, so that no event follows when the write lands.
func TestUnconfirmedRewriteIsFinished(t *testing.T) {
	w := newWorld(t)
	w.orders.spoil = func() error { return errLost }
	p := w.make(Config{})
	p.log.unanswered = 10
	var once sync.Once
	p.call = func(string) error {
		once.Do(func() {
			w.deleteClaim()
			p.seesNoClaim()
		})
		return nil
	}
	p.start()
	w.makeClaim()
	w.wait("the volume is made", func() bool { return w.count("create volume") > 0 })
	w.wait("it is deleted, and nothing is in flight", func() bool { return w.settled() && w.count("delete volume") > 0 })
}

// TestClaimIsReadAfterItsEntryWasSettled: its next entry is not its first, even if no try has seen the end of the
// earlier one.
func TestClaimIsReadAfterItsEntryWasSettled(t *testing.T) {
	w := newWorld(t)
	p := w.madeUnseen()
	if n := w.count("read claim"); n > 0 {
		t.Fatalf("%d reads of a new claim", n)
	}
	w.settle()
	p.log.readForAnother()
	w.wait("the claim is read", func() bool { return w.count("read claim") > 0 })
	w.failing(false, nil)
	w.wait("it is provisioned", w.provisioned)
}

// TestEndedClaimsTakeNoMemory: the end of an entry may come after the end of its claim.
func TestEndedClaimsTakeNoMemory(t *testing.T) {
	w := newWorld(t)
	p := w.madeUnseen()
	w.deleteClaim()
	p.seesNoClaim()
	w.settle()
	w.wait("nothing is remembered", func() bool {
		tracker := p.provisioner.tracker
		tracker.mu.Lock()
		defer tracker.mu.Unlock()
		return len(tracker.of)+len(tracker.names)+len(tracker.shown)+len(tracker.open) == 0
	})
}
