package reclaim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
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
		w.pv.StorageClass = "fast"
		w.store(r, w.pv)
		w.fail[c.step] = c.err
		r.reconcile(t.Context(), "pv")
		var failed dto.Metric
		if err := r.metrics.failed.WithLabelValues("fast").Write(&failed); err != nil {
			t.Fatal(err)
		}
		if got := failed.GetCounter().GetValue(); got != c.want {
			t.Errorf("%s: %v: %v failures are counted, want %v", c.step, c.err, got, c.want)
		}
	}
}

func TestDryRunMakesNoWrites(t *testing.T) {
	cases := map[string]func(*volume.PV){
		"a volume is due":          func(*volume.PV) {},
		"a PV is to be protected":  func(pv *volume.PV) { pv.Phase, pv.HasFinalizer = volume.PhaseBound, false },
		"a finalizer is to be off": func(pv *volume.PV) { pv.Policy = volume.PolicyRetain },
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

// reported records Events by the object's kind and the reason.
type reported struct {
	events.Discard
	events []string
}

func (r *reported) Event(o runtime.Object, kind, reason, _ string) {
	on := ""
	if ref, ok := o.(*v1.ObjectReference); ok {
		on = ref.Kind
	}
	r.events = append(r.events, kind+" "+reason+" on "+on)
}

// An error that comes after the end of the PV leaves no report, which would count as a waiting PV until a restart.
func TestFailureAfterEndLeavesNoReport(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*volume.PV)
		work   func(*Controller)
	}{
		"release": {func(*volume.PV) {}, func(r *Controller) { r.reconcile(t.Context(), "pv") }},
		"delete volume": {func(pv *volume.PV) { pv.Policy = volume.PolicyRetain },
			func(r *Controller) { r.reconcile(t.Context(), "pv") }},
		"protect": {func(pv *volume.PV) { pv.Policy = volume.PolicyRetain },
			func(r *Controller) { r.protect(t.Context(), "pv") }},
	} {
		w, r := newWorldWith(t, Config{ProtectWorkers: 1})
		if what == "protect" {
			w.pv.Phase, w.pv.HasFinalizer = volume.PhaseBound, false
			w.store(r, w.pv)
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

func TestTooLateToKeepAfterVolumeDeleted(t *testing.T) {
	cases := map[string]func(*volume.PV){
		"the policy is turned": func(pv *volume.PV) { pv.Policy = volume.PolicyRetain },
		"it is held":           func(pv *volume.PV) { pv.Held = true },
		"it is claimed anew": func(pv *volume.PV) {
			pv.Claim, pv.Phase = volume.ClaimRef{Namespace: "ns", Name: "new", UID: "new-uid"}, volume.PhaseBound
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			heard := &reported{}
			w, r := newWorldWith(t, Config{Events: heard})
			w.fail["delete PV"] = errors.New("not now")
			r.reconcile(t.Context(), "pv")
			delete(w.fail, "delete PV")
			change(&w.pv)
			w.store(r, w.pv)
			heard.events, w.diary = nil, nil
			r.reconcile(t.Context(), "pv")
			w.expect(t, "delete PV", "release")
			want := []string{"Warning TooLateToKeep on PersistentVolume", "Warning TooLateToKeep on PersistentVolumeClaim"}
			if !slices.Equal(heard.events, want) {
				t.Errorf("reported %q, want %q", heard.events, want)
			}
		})
	}
}

// The PV is not read again after DeleteVolume, and the watch may lag, so the answer to the last write shows the
// change.
func TestTooLateToKeepDuringDeleteVolume(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*volume.PV)
		want   []string
	}{
		"the policy is turned": {func(pv *volume.PV) { pv.Policy = volume.PolicyRetain },
			[]string{"Warning TooLateToKeep on PersistentVolume", "Warning TooLateToKeep on PersistentVolumeClaim"}},
		"it is held": {func(pv *volume.PV) { pv.Held = true },
			[]string{"Warning TooLateToKeep on PersistentVolume", "Warning TooLateToKeep on PersistentVolumeClaim"}},
		"nothing is changed": {func(*volume.PV) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			heard := &reported{}
			w, r := newWorldWith(t, Config{Events: heard})
			w.before = func(what string) {
				if what == "delete volume" {
					c.change(&w.pv)
				}
			}
			r.reconcile(t.Context(), "pv")
			heard.events = slices.DeleteFunc(heard.events, func(e string) bool { return !strings.Contains(e, "TooLateToKeep") })
			if !slices.Equal(heard.events, c.want) || !slices.Contains(w.diary, "release") {
				t.Errorf("reported %q, want %q; done: %q", heard.events, c.want, w.diary)
			}
		})
	}
}

// A driver whose answer is missing may have deleted the volume, or do so later.
func TestTooLateToKeepAfterUnansweredDeleteVolume(t *testing.T) {
	late := []string{"Warning TooLateToKeep on PersistentVolume", "Warning TooLateToKeep on PersistentVolumeClaim"}
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"unanswered":  {errors.New("no answer"), late},
		"in progress": {errclass.Mark(errclass.InProgress, errors.New("at work")), late},
		"refused":     {errclass.Mark(errclass.Refused, errors.New("in use")), nil},
	} {
		heard := &reported{}
		w, r := newWorldWith(t, Config{Events: heard})
		w.fail["delete volume"] = c.err
		r.reconcile(t.Context(), "pv")
		w.pv.Held, w.pv.ResourceVersion = true, "11"
		w.store(r, w.pv)
		for range 2 {
			r.reconcile(t.Context(), "pv")
		}
		heard.events = slices.DeleteFunc(heard.events, func(e string) bool { return !strings.Contains(e, "TooLateToKeep") })
		if !slices.Equal(heard.events, c.want) {
			t.Errorf("%s: reported %q, want %q", name, heard.events, c.want)
		}
	}
}

func TestTooLateToKeepOtherPVOfVolume(t *testing.T) {
	heard := &reported{}
	w, r := newWorldWith(t, Config{Events: heard})
	other := sibling()
	other.Claim.Name = "other-claim"
	w.others["other"] = other
	w.store(r, other)
	w.before = func(what string) {
		if what == "delete volume" {
			other.Held, other.ResourceVersion = true, "11"
			w.store(r, other)
		}
	}
	r.reconcile(t.Context(), "pv")
	want := []string{"Warning TooLateToKeep on PersistentVolume", "Warning TooLateToKeep on PersistentVolumeClaim"}
	if !slices.Equal(heard.events, want) || !slices.Contains(w.diary, "release") {
		t.Errorf("reported %q, want %q; done: %q", heard.events, want, w.diary)
	}
}

// A PV whose claim is deleted soon has no Event, and one whose claim stays has a single one.
func TestTerminatingBoundEventAfterAMinute(t *testing.T) {
	heard := &reported{}
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
	if got := r.detail(reclaim.Facts{PV: w.pv}, reclaim.ReasonTerminatingBound); got != want {
		t.Errorf("the Event adds %q, want %q", got, want)
	}
	w.expect(t) // no call was made
}

func TestExplain(t *testing.T) {
	w, r := newWorld(t)
	if e, found := r.Explain("pv"); !found || e.Action != "ReadSecrets" || e.Reason != reclaim.ReasonReclaim {
		t.Errorf("Explain = %+v, %v", e, found)
	}
	w.pv.Held, w.pv.HeldBecause = true, "evidence"
	w.store(r, w.pv)
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
