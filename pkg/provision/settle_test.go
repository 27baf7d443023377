package provision

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
)

// seesNoClaim waits until the process sees the end of the claim.
func (p *process) seesNoClaim() {
	p.t.Helper()
	p.wait("the end of the claim is seen", func() bool { return p.provisioner.claims.WholeByUID("u1") == nil })
}

// TestSettledEntryIsLeftToTheOperator covers a driver that never answers conclusively.
func TestSettledEntryIsLeftToTheOperator(t *testing.T) {
	w := newWorld(t)
	p := w.madeUnseen()
	w.deleteClaim()
	// Until then the claim exists for the provisioner, which may begin again.
	w.wait("the end of the claim is seen", func() bool { return p.provisioner.claims.WholeByUID("u1") == nil })
	w.settle()
	n := w.count("create volume")
	w.failing(false, nil)
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "u2" })
	w.wait("another claim is provisioned", func() bool { return w.count("create PV") == 1 })
	if w.count("create volume") > n+2 || w.pv() != nil {
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
					once.Do(func() { w.pvInTheWay("another.example.com", "u0") })
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
			w.wait("another claim has its PV", func() bool {
				_, err := w.client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-u2", metav1.GetOptions{})
				return err == nil
			})
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
			w.failing(true, class(errclass.Uncertain))
			p := w.start(Config{})
			w.makeSource()
			w.makeClaim(func(c *v1.PersistentVolumeClaim) {
				c.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
			})
			w.wait("the volume is made unseen", func() bool { return len(w.onDisk()) == 1 })
			claims := w.client.CoreV1().PersistentVolumeClaims("ns")
			w.must(claims.Delete(t.Context(), "source", metav1.DeleteOptions{}))
			w.deleteClaim()
			p.seesNoClaim()
			w.wait("the source is seen to terminate", func() bool {
				source, found := p.provisioner.claims.Get("ns/source")
				return found && caches.IsTerminatingSource(source)
			})
			w.calls(2) // by then, nothing is queued for the source
			w.settle()
			read(p)
			w.wait("the source is gone", func() bool {
				_, err := claims.Get(t.Context(), "source", metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			})
		})
	}
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
		return len(tracker.of)+len(tracker.volumes)+len(tracker.open)+len(tracker.ended) == 0
	})
}
