package intree

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

// stories are the scenarios played with a crash after each write.
func stories() map[string]func(*world) {
	return map[string]func(*world){
		"PV first": func(w *world) { pvFirst(w, "a") },
		"claim first": func(w *world) {
			w.settle()
			delete(w.claims, "claim-a")
			w.settle()
		},
		"the plugin fails at first": func(w *world) {
			w.stuck["/disks/a"] = "busy"
			w.deleteBoth()
			w.settleOnce()
			delete(w.stuck, "/disks/a")
			w.settle()
		},
	}
}

func TestCrashAfterEachWrite(t *testing.T) {
	for name, play := range stories() {
		t.Run(name, func(t *testing.T) {
			for k := 1; ; k++ {
				w := newWorld(t)
				w.crashAfter = k
				w.provision("a")
				w.provision("keeper")
				play(w)
				w.expectGone("a")
				w.expectKept("keeper")
				if w.crashAfter != 0 {
					if k < 4 {
						t.Errorf("the story has only %d writes", k)
					}
					return
				}
			}
		})
	}
}

func TestFailedCallsAreRetried(t *testing.T) {
	broken := errors.New("broken")
	undisturbed := newWorld(t, "a")
	pvFirst(undisturbed, "a")
	for k := range undisturbed.diary {
		w := newWorld(t)
		calls := 0
		w.before = func(string) error {
			calls++
			if calls == k+1 {
				return broken
			}
			return nil
		}
		w.provision("a")
		pvFirst(w, "a")
		w.expectGone("a")
	}
}

func TestLastReadSeesChanges(t *testing.T) {
	change := map[string]func(*world){
		"turned to Retain": func(w *world) { w.edit("a", setPolicy(v1.PersistentVolumeReclaimRetain)) },
		"held":             func(w *world) { w.edit("a", hold) },
		"taken back by an administrator": func(w *world) {
			w.edit("a", func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" })
		},
		"the finalizer is removed": func(w *world) { w.edit("a", guard(false, "")) },
	}
	for name, change := range change {
		for _, at := range []int{1, 2} { // the live reads before CreateTwin and before SetTwinDelete
			t.Run(fmt.Sprintf("%s at read %d", name, at), func(t *testing.T) {
				w := newWorld(t, "a")
				reads := 0
				w.before = func(what string) error {
					if what == "read a" {
						if reads++; reads == at {
							change(w)
						}
					}
					return nil
				}
				pvFirst(w, "a")
				w.expectKept("a")
				if reads < at {
					t.Errorf("the PV was read %d times", reads)
				}
			})
		}
	}
}

func TestNoWritesBesideManagingController(t *testing.T) {
	w := newWorld(t)
	w.modern = true
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		w.provision(name)
	}
	w.settle()
	pvFirst(w, "a")
	delete(w.claims, "claim-b")
	w.settle()
	w.edit("c", setPolicy(v1.PersistentVolumeReclaimRetain))
	w.settle()
	w.edit("c", setPolicy(v1.PersistentVolumeReclaimDelete))
	w.settle()
	w.expectGone("a")
	w.expectGone("b")
	if w.writes > 0 {
		t.Errorf("written: %q", w.wroteDown())
	}
	if _, evidence := w.c.observer.other(); evidence != "c" {
		t.Errorf("what shows who manages the finalizer is PV %q", evidence)
	}
}

// A newer PV controller has added its finalizer to a twin, and one from before 1.31 has taken over again.
func TestForeignFinalizerOfTwinIsRemoved(t *testing.T) {
	w := newWorld(t, "a")
	w.upTo("turn")
	w.edit("a-reclaim", guard(true, kcm))
	w.settle()
	w.expectGone("a")
}

// An upgraded PV controller adds its finalizer to a twin with policy Delete, and removes it from one with Retain. While
// its plugin works on the PV itself, volume-guard leaves the PV alone.
func TestTwinPolicyDoesNotAlternate(t *testing.T) {
	w := newWorld(t, "a")
	w.upTo("turn")
	w.edit("a-reclaim", guard(true, kcm))
	for range 200 {
		if w.delivered() || w.worked() {
			continue
		}
		twin := w.pvs["a-reclaim"]
		switch {
		case twin == nil:
		case twin.DeletionTimestamp != nil:
			w.edit("a-reclaim", func(pv *v1.PersistentVolume) { pv.Finalizers = nil })
		case twin.Status.Phase == v1.VolumePending:
			w.phase(twin.DeepCopy(), v1.VolumeReleased, "")
		default:
			w.edit("a-reclaim", guard(twin.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete, kcm))
		}
	}
	if n := count(w.diary, "create "); n != 1 {
		t.Errorf("%d twins were made", n)
	}
	w.settle()
	w.expectGone("a")
}

// One finalizer of unknown origin, as from a restored backup, must not make all other volumes leak.
func TestIdleOtherProgramIsReplaced(t *testing.T) {
	w := newWorld(t, "strange", "old")
	w.settle()
	w.edit("strange", guard(false, ""))
	w.edit("strange", guard(true, "restore"))
	w.provision("new")
	before := w.writes
	w.deletePVBy("old")
	delete(w.claims, "claim-old")
	w.settleOnce()
	if w.writes != before {
		t.Errorf("written at once: %q", w.wroteDown())
	}
	w.pass(intree.IdleAfter)
	w.settleOnce()
	w.expectGone("old")
	if !slices.Contains(w.pvs["new"].Finalizers, intree.Finalizer) {
		t.Error("the new PV is not protected")
	}
	pvFirst(w, "strange")
	w.expectKept("strange")
	if got := w.c.recorder.Waiting(); got[intree.ReasonControllerIdle] != 1 {
		t.Errorf("waiting: %v, want one %s", got, intree.ReasonControllerIdle)
	}
}

func TestUpgradeDuringDeletion(t *testing.T) {
	for steps := range 40 {
		w := newWorld(t, "a", "b")
		w.deleteBoth()
		for range steps {
			_ = w.delivered() || w.worked() || w.controllers()
		}
		w.modern = true
		w.provision("c")
		w.settle()
		w.expectGone("a")
		w.expectKept("b")
		w.expectKept("c")
	}
}

func TestDryRun(t *testing.T) {
	w := newWorld(t)
	w.startWith(Config{controllers.Settings{DryRun: true}})
	w.provision("a")
	w.settle()
	w.edit("a", guard(true, intree.FieldManager))
	pvFirst(w, "a")
	if w.writes > 0 {
		t.Errorf("written: %q", w.wroteDown())
	}
	w.expectKept("a")
	if got := w.c.recorder.Waiting(); got[intree.ReasonDryRun] != 1 {
		t.Errorf("reported: %v", got)
	}
}

func TestBackoffWhilePluginFails(t *testing.T) {
	w := newWorld(t, "a")
	w.stuck["/disks/a"] = "busy"
	w.deleteBoth()
	var before time.Duration
	for try := range 12 {
		w.settleOnce()
		failure := w.c.observer.tracker.Failures[w.pvs["a"].UID]
		rest := failure.Until.Sub(w.clock.Now())
		if want := min(time.Second<<try, 5*time.Minute); rest != want || rest < before {
			t.Errorf("after try %d the next comes after %v, want %v", try+1, rest, want)
		}
		before = rest
		w.pass(rest)
	}
	if n := count(w.diary, "create "); n != 12 {
		t.Errorf("%d twins in 12 tries", n)
	}
}

func count(diary []string, prefix string) (n int) {
	for _, line := range diary {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// A twin left by a lost reply or by another replica is set to Delete only after a second read, like any other.
func TestExistingTwinIsReadTwice(t *testing.T) {
	w := newWorld(t, "a")
	w.deleteBoth()
	w.before = func(what string) error {
		if strings.HasPrefix(what, "create ") {
			o := intree.NewTwin(w.pvs["a"])
			o.UID, o.Status.Phase = "made-before", v1.VolumeReleased
			w.set(o)
			w.before = nil
		}
		return nil
	}
	w.settleOnce()
	if n := count(w.diary, "read claim"); n != 2 {
		t.Errorf("the claim was read %d times before the twin was set to Delete:\n%s", n, strings.Join(w.diary, "\n"))
	}
	w.settle()
	w.expectGone("a")
}

// A PV that is gone before the last answer of its session is not counted as waiting for ever.
func TestLateReportIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.settle()
	w.deletePVBy("a")
	w.settle()
	delete(w.claims, "claim-a")
	asked := 0
	w.before = func(string) error {
		asked++
		if pv, found := w.pvs["a"]; found {
			pv.Finalizers = nil
			w.set(pv)
			for w.delivered() {
			}
		}
		return errors.New("no answer")
	}
	w.settle()
	if waiting := w.c.recorder.Waiting(); asked == 0 || len(w.cache) != 0 || len(waiting) != 0 {
		t.Errorf("%v wait, and the watch shows %v", waiting, w.cache)
	}
}
