package reclaim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// As in sig-storage-lib-external-provisioner, failed writes after the volume's deletion count, except writes that find
// the PV gone or changed.
func TestFailedDeletionMetric(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		step string
		err  error
		want float64
	}{
		{"read pv", broken, 0}, {"delete volume", broken, 1}, {"delete PV", broken, 1}, {"release", broken, 1},
		{"delete PV", kube.ErrGone, 0}, {"release", kube.ErrGone, 0}, {"release", kube.ErrChanged, 0},
	} {
		w, r := newWorld(t)
		w.alter(r, func(pv *volume.PV) { pv.StorageClass = "fast" })
		w.fail[c.step] = c.err
		r.reconcile(t.Context(), "pv")
		if got := kubetest.Count(t, r.metrics.failed.WithLabelValues("fast")); got != c.want {
			t.Errorf("%s: %v: %v failures are counted, want %v", c.step, c.err, got, c.want)
		}
	}
}

// The end of the lease cuts off calls, which is no failure of the driver or the API server. A volume that is deleted
// counts all the same.
func TestCallsCutOffAreNotFailures(t *testing.T) {
	for _, c := range []struct {
		step    string
		fails   error
		deleted float64
	}{
		{"delete volume", nil, 1}, {"delete volume", context.Canceled, 0},
		{"delete PV", context.Canceled, 1}, {"release", context.Canceled, 1},
	} {
		term := held()
		w, r := newWorldWith(t, Config{Lease: term})
		w.alter(r, func(pv *volume.PV) { pv.StorageClass = "fast" })
		w.fail[c.step] = c.fails
		w.at(c.step, func() { term.set(0) })
		r.reconcile(t.Context(), "pv")
		deleted := kubetest.Count(t, r.metrics.total.WithLabelValues("fast"))
		failed := kubetest.Count(t, r.metrics.failed.WithLabelValues("fast"))
		if deleted != c.deleted || failed != 0 || !slices.Contains(w.diary, c.step) {
			t.Errorf("%s: %v: %v deletions, %v failures counted after %q", c.step, c.fails, deleted, failed, w.diary)
		}
	}
}

// lapse is a Lease that has run out when it is checked for the first time, and is renewed after that.
type lapse struct{ checked bool }

func (l *lapse) Left() (d time.Duration) {
	if l.checked {
		d = time.Hour
	}
	l.checked = true
	return d
}

func TestCallsNotSentAreNotFailures(t *testing.T) {
	term := &lapse{}
	w, r := newWorldWith(t, Config{Lease: term})
	w.pv.StorageClass, term.checked = "fast", false
	deletion := reclaim.Ask{Decision: reclaim.Decision{Action: reclaim.DeleteVolume}, PV: w.pv}
	if a := r.ask(t.Context(), deletion, nil); a.Outcome != reclaim.NotSent {
		t.Fatalf("outcome %v, %v", a.Outcome, a.err)
	}
	w.expect(t)
	if got := kubetest.Count(t, r.metrics.failed.WithLabelValues("fast")); got != 0 {
		t.Errorf("%v failures are counted", got)
	}
}

// An Event names the previous leader as a possible cause only while its last writes may still appear.
func TestTakeoverEndsAfterItsPeriod(t *testing.T) {
	w, r := newWorldWith(t, Config{TakeoverPeriod: 20 * time.Second})
	for _, c := range []struct {
		passes time.Duration
		want   bool
	}{{0, true}, {20*time.Second - 1, true}, {1, false}} {
		if w.clock.Step(c.passes); c.passes == 0 {
			r.lead(true)
		}
		if got := r.moment("pv").TookOver; got != c.want {
			t.Errorf("after another %v: %v", c.passes, got)
		}
	}
}

func TestDryRunMakesNoWrites(t *testing.T) {
	cases := map[string]func(*volume.PV){
		"a volume is due":          func(*volume.PV) {},
		"a PV is to be protected":  func(pv *volume.PV) { pv.Phase, pv.HasFinalizer = volume.PhaseBound, false },
		"a finalizer is to be off": retain,
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorldWith(t, Config{DryRun: true})
			change(&w.pv)
			w.store(r, w.pv)
			r.reconcile(t.Context(), "pv")
			for _, what := range w.diary {
				if what != "read claim" && what != "read pv" {
					t.Errorf("did %q", what)
				}
			}
			if r.recorder.Waiting()[reclaim.ReasonDryRun] != 1 {
				t.Errorf("waiting: %v", r.recorder.Waiting())
			}
		})
	}
}

// An error that comes after the end of the PV leaves no report, which would count as a waiting PV until a restart.
func TestFailureAfterEndLeavesNoReport(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*volume.PV)
		work   func(*Controller)
	}{
		"release":       {func(*volume.PV) {}, func(r *Controller) { r.reconcile(t.Context(), "pv") }},
		"delete volume": {retain, func(r *Controller) { r.reconcile(t.Context(), "pv") }},
		"protect":       {retain, func(r *Controller) { r.protect(t.Context(), "pv") }},
	} {
		w, r := newWorldWith(t, Config{ProtectWorkers: 1})
		if what == "protect" {
			w.alter(r, bound, strip)
		}
		asked := false
		w.fail[what] = errors.New("no answer")
		w.before = func(did string) {
			if did != what {
				return
			}
			asked = true
			last := w.pv
			c.change(&last)
			w.store(r, last)
			w.end(r)
		}
		c.work(r)
		if n := len(r.recorder.Waiting()); !asked || n > 0 {
			t.Errorf("%s: asked %t, waiting %v", what, asked, r.recorder.Waiting())
		}
	}
}

// A PV that is changed to keep its volume, after the deletion of the volume or during it, is reported with its claim.
func TestTooLateToKeep(t *testing.T) {
	late := []string{"Warning TooLateToKeep on PersistentVolume", "Warning TooLateToKeep on PersistentVolumeClaim"}
	heard := &heard{}
	w, r := newWorldWith(t, Config{Events: heard})
	w.fail["delete PV"] = errors.New("not now")
	r.reconcile(t.Context(), "pv")
	delete(w.fail, "delete PV")
	w.alter(r, hold)
	heard.events, w.diary = nil, nil
	r.reconcile(t.Context(), "pv")
	if w.expect(t, "delete PV", "release"); !slices.Equal(heard.events, late) {
		t.Errorf("the PV: reported %q, want %q", heard.events, late)
	}

	// The PV is not read again after DeleteVolume, and the watch may lag: the answer to the last write shows the change.
	heard.events = nil
	w, r = newWorldWith(t, Config{Events: heard})
	w.before = func(what string) { w.pv.Held = w.pv.Held || what == "delete volume" }
	if r.reconcile(t.Context(), "pv"); !slices.Equal(heard.events, late) || !slices.Contains(w.diary, "release") {
		t.Errorf("the PV, during the deletion: reported %q, want %q; done: %q", heard.events, late, w.diary)
	}

	heard.events = nil
	w, r = newWorldWith(t, Config{Events: heard})
	other := sibling()
	other.Claim.Name = "other-claim"
	w.join(r, other)
	w.at("delete volume", func() {
		other.Held, other.ResourceVersion = true, "11"
		w.store(r, other)
	})
	r.reconcile(t.Context(), "pv")
	if !slices.Equal(heard.events, late) || !slices.Contains(w.diary, "release") {
		t.Errorf("another PV: reported %q, want %q; done: %q", heard.events, late, w.diary)
	}
}

// A PV whose claim is deleted soon has no Event, and one whose claim stays has a single one.
func TestTerminatingBoundEventAfterAMinute(t *testing.T) {
	heard := &heard{}
	w, r := newWorldWith(t, Config{Events: heard})
	w.pv.Phase, w.pv.Terminating, w.pv.TerminatingSince = volume.PhaseBound, true, w.clock.Now().Unix()
	w.store(r, w.pv)
	for _, c := range []struct {
		passes time.Duration
		events int
		want   controller.Result
	}{
		{0, 0, controller.After(time.Minute)}, {20 * time.Second, 0, controller.After(40 * time.Second)},
		{40 * time.Second, 1, controller.Done()}, {time.Hour, 1, controller.Done()},
	} {
		w.clock.Step(c.passes)
		if got := r.reconcile(t.Context(), "pv"); got != c.want {
			t.Errorf("after %v: due again %+v, want %+v", c.passes, got, c.want)
		}
		if len(heard.events) != c.events || r.recorder.Waiting()[reclaim.ReasonTerminatingBound] != 1 {
			t.Errorf("after %v: reported %q, waiting %v", c.passes, heard.events, r.recorder.Waiting())
		}
	}
	if want := "Normal TerminatingBound on PersistentVolume"; !slices.Contains(heard.events, want) {
		t.Errorf("reported %q, want %q", heard.events, want)
	}
	want := "`kubectl reclaim explain pv/pv` names the pods that use claim ns/claim."
	if len(heard.messages) == 0 || !strings.HasSuffix(heard.messages[0], " "+want) {
		t.Errorf("the Event is %q, and should end with %q", heard.messages, want)
	}
	w.expect(t) // no call was made
}

func TestExplain(t *testing.T) {
	w, r := newWorld(t)
	if e, found := r.Explain("pv"); !found || e.Action != "ReadSecrets" || e.Reason != reclaim.ReasonReclaim {
		t.Errorf("Explain = %+v, %v", e, found)
	}
	w.alter(r, func(pv *volume.PV) { pv.Held, pv.HeldBecause = true, "evidence" })
	e, found := r.Explain("pv")
	if !found || e.Reason != reclaim.ReasonHeld || !strings.Contains(e.Text, `"evidence"`) ||
		!strings.Contains(e.Text, volume.HoldAnnotation) {
		t.Errorf("Explain = %+v, %v", e, found)
	}
	if _, found := r.Explain("another"); found {
		t.Error("explains a PV that is not there")
	}
	w.expect(t) // no call was made
}
