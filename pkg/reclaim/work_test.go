package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestDeletionOrder(t *testing.T) {
	cases := map[string]struct {
		prepare func(*world, *Controller)
		want    []string
	}{
		"claim first": {func(*world, *Controller) {}, reclaims()},
		"PV first": {func(w *world, r *Controller) { w.alter(r, terminate) },
			[]string{"read claim", "read pv", "delete volume", "release"}},
		"the claim's end was watched": {func(_ *world, r *Controller) { r.ClaimDeleted(claimOf("pv", "claim-uid")) },
			[]string{"read pv", "delete volume", "delete PV", "release"}},
		"the claim's end was watched, and it was restored": {func(_ *world, r *Controller) {
			r.ClaimDeleted(claimOf("pv", "claim-uid"))
			r.ClaimShown(claimOf("pv", "newer"))
		}, reclaims()},
		"the claim's end was watched long ago": {func(w *world, r *Controller) {
			r.ClaimDeleted(claimOf("pv", "claim-uid"))
			w.clock.Step(session.LiveFor + time.Second)
		}, reclaims()},
		"a claim that named no volume was deleted": {func(_ *world, r *Controller) {
			r.ClaimDeleted(claimOf("", "claim-uid"))
		}, reclaims()},
		"attached before, with a secret and a sibling": {func(w *world, r *Controller) {
			w.pv.WasAttached, w.pv.SecretKnown, w.pv.DeletionSecret = true, true,
				volume.SecretRef{Namespace: "ns", Name: "secret"}
			w.store(r, w.pv)
			w.join(r, sibling())
		}, []string{"list attachments", "read secret", "read claim", "read claim", "read other", "read pv", "delete volume",
			"delete PV", "release"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t)
			c.prepare(w, r)
			if next := r.reconcile(t.Context(), "pv"); next.Backoff.Max != 0 {
				t.Errorf("comes back after %+v", next.Backoff)
			}
			w.expect(t, c.want...)
		})
	}
}

// A claim that was restored while the PV waited keeps the volume even if the watch of claims has not shown it.
func TestUnwatchedRestoredClaimKeepsVolume(t *testing.T) {
	for name, c := range map[string]struct{ waits, goes func(*volume.PV) }{
		"the PV was held": {hold, func(pv *volume.PV) { pv.Held = false }},
		"the PV was bound": {
			bound, func(pv *volume.PV) { pv.Phase = volume.PhaseFailed }},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t)
			r.ClaimDeleted(claimOf("pv", "claim-uid"))
			c.waits(&w.pv)
			w.store(r, w.pv)
			r.reconcile(t.Context(), "pv")
			w.expect(t)
			w.claim.Found, w.claim.UID, w.claim.VolumeName = true, "restored", "pv"
			w.clock.Step(time.Hour)
			c.goes(&w.pv)
			w.store(r, w.pv)
			r.reconcile(t.Context(), "pv")
			w.expect(t, "read claim")
		})
	}
}

// claimOf returns a claim that names a PV, as a watch delivers it.
func claimOf(pv string, uid types.UID) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: uid},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: pv}}
}

func TestLaggingCacheRepeatsNoStep(t *testing.T) {
	w, r := newWorld(t)
	for range 3 {
		r.reconcile(t.Context(), "pv")
	}
	w.expect(t, reclaims()...)
}

func TestRetryAfterFailedStep(t *testing.T) {
	broken := errors.New("broken")
	all := reclaims()
	cases := map[string][]string{ // the step that fails once, and the whole diary
		"read claim":    append([]string{"read claim"}, all...),
		"read pv":       append([]string{"read claim", "read pv"}, all...),
		"delete volume": append([]string{"read claim", "read pv", "delete volume"}, all...),
		"delete PV":     {"read claim", "read pv", "delete volume", "delete PV", "delete PV", "release"},
		"release":       {"read claim", "read pv", "delete volume", "delete PV", "release", "release"},
	}
	for step, want := range cases {
		t.Run(step, func(t *testing.T) {
			w, r := newWorld(t)
			w.fail[step] = broken
			if next := r.reconcile(t.Context(), "pv"); next.Backoff.Max == 0 {
				t.Error("a failed step is not tried again")
			}
			delete(w.fail, step)
			r.reconcile(t.Context(), "pv")
			w.expect(t, want...)
		})
	}
}

func TestChangesBeforeLastRead(t *testing.T) {
	reads := []string{"read claim", "read pv"}
	cases := map[string]struct {
		at     string
		change func(*world)
		want   []string
	}{
		"turned to Retain": {"read pv", func(w *world) { w.pv.Policy = volume.PolicyRetain },
			append(slices.Clone(reads), "drop")},
		"turned to Retain before the claim's answer": {"read claim",
			func(w *world) { w.pv.Policy = volume.PolicyRetain }, append(slices.Clone(reads), "drop")},
		"taken back by an administrator": {"read pv", func(w *world) { w.pv.Claim.UID = "" }, reads},
		"bound to a new claim": {"read pv", func(w *world) {
			w.pv.Claim, w.pv.Phase = volume.ClaimRef{Namespace: "ns", Name: "new", UID: "new-uid"}, volume.PhaseBound
		}, reads},
		"released from a new claim": {"read pv", func(w *world) {
			w.pv.Claim = volume.ClaimRef{Namespace: "ns", Name: "new",
				UID: "new-uid"}
		},
			[]string{"read claim", "read pv", "read claim", "read pv", "delete volume", "delete PV", "release"}},
		"finalizer removed by others": {"read pv", func(w *world) { w.pv.HasFinalizer, w.pv.Terminating = false, true },
			reads},
		"attached, as only the live read shows": {"read pv", func(w *world) { w.pv.WasAttached = true },
			[]string{"read claim", "read pv", "list attachments", "read pv", "delete volume", "delete PV", "release"}},
		"gone":                    {"read pv", func(w *world) { w.pvFound = false }, reads},
		"another PV of that name": {"read pv", func(w *world) { w.pv.UID = "newer" }, reads},
		"claim found": {"read claim", func(w *world) {
			w.claim = pvclaim.Result{Found: true,
				UID: "claim-uid"}
		}, []string{"read claim"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t)
			w.at(c.at, sync.OnceFunc(func() { c.change(w) }))
			r.reconcile(t.Context(), "pv")
			w.expect(t, c.want...)
		})
	}
}

func TestWatchEventsDuringReads(t *testing.T) {
	keeper := sibling()
	keeper.Policy = volume.PolicyRetain
	cases := map[string]struct {
		change func(*world, *Controller)
		want   []string
	}{
		"an attachment": {func(_ *world, r *Controller) {
			attachmentEvents{r}.Added("pv")
		}, []string{"read claim", "read pv"}},
		"a sibling that keeps the volume": {func(w *world, r *Controller) { w.store(r, keeper) },
			[]string{"read claim", "read pv"}},
		"a sibling that was read and then turned to Retain": {func(w *world, r *Controller) {
			w.join(r, sibling())
			w.at("read pv", func() {
				later := keeper
				later.ResourceVersion = "11"
				w.join(r, later)
			})
		}, []string{"read claim", "read pv", "read claim", "read other", "read pv"}},
		"a sibling that is to go too": {func(w *world, r *Controller) {
			w.join(r, sibling())
		},
			[]string{"read claim", "read pv", "read claim", "read other", "read pv", "delete volume", "delete PV", "release"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t)
			w.at("read pv", sync.OnceFunc(func() { c.change(w, r) }))
			r.reconcile(t.Context(), "pv")
			w.expect(t, c.want...)
		})
	}
}

func TestAbsentSiblingDoesNotBlockDeletion(t *testing.T) {
	w, r := newWorld(t)
	w.store(r, sibling()) // in the cache only
	r.reconcile(t.Context(), "pv")
	w.expect(t, "read claim", "read claim", "read other", "read pv", "delete volume", "delete PV", "release")
}

// A user changes the sibling before its claim's read is answered.
func TestSiblingIsReadAfterItsClaim(t *testing.T) {
	for name, change := range map[string]func(*volume.PV){
		"turned to Retain":     retain,
		"names another claim":  func(pv *volume.PV) { pv.Claim.UID = "newer" },
		"claimRef without UID": func(pv *volume.PV) { pv.Claim.UID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t)
			w.join(r, sibling())
			claims := 0
			w.before = func(what string) {
				if what != "read claim" {
					return
				}
				if claims++; claims == 2 {
					other := sibling()
					change(&other)
					w.others["other"] = other
				}
			}
			if next := r.reconcile(t.Context(), "pv"); next.Backoff.Max == 0 && name == "names another claim" {
				t.Error("is not tried again")
			}
			w.expect(t, "read claim", "read claim", "read other")
		})
	}
}

func TestAttachmentOnlyInListIsRetried(t *testing.T) {
	w, r := newWorld(t)
	w.alter(r, func(pv *volume.PV) { pv.WasAttached = true })
	w.list.content = map[string]int{"pv": 1}
	if next := r.reconcile(t.Context(), "pv"); next.Backoff.Max == 0 {
		t.Error("nothing looks again: the watch may never tell of this attachment")
	}
	w.expect(t, "list attachments")
}

func TestSlowReadsEndInRetry(t *testing.T) {
	w, r := newWorld(t)
	w.at("read claim", func() { w.clock.Step(5*time.Second + time.Second) })
	if next := r.reconcile(t.Context(), "pv"); next.Backoff.Max == 0 {
		t.Error("is not tried again")
	}
	if slices.Contains(w.diary, "delete volume") {
		t.Errorf("deleted on reads that were too old: %q", w.diary)
	}
	if len(w.diary) > reclaim.MaxSteps {
		t.Errorf("%d steps in one run, want at most %d", len(w.diary), reclaim.MaxSteps)
	}
}

func TestRetryDelayByError(t *testing.T) {
	gone, changed := fmt.Errorf("x: %w", kube.ErrGone), fmt.Errorf("x: %w", kube.ErrChanged)
	cases := map[string]struct {
		step  string
		err   error
		retry time.Duration // First delay at most; 0: none
		last  string
	}{
		"PV gone when it is deleted: nothing remains":  {"delete PV", gone, 0, "delete PV"},
		"PV gone when it is released: nothing remains": {"release", gone, 0, "release"},
		"another PV of that name: decides again soon":  {"delete PV", changed, time.Second, "delete PV"},
		"the driver is at work on it: asks again soon": {"delete volume",
			errclass.Mark(errclass.InProgress, errors.New("x")), time.Second, "delete volume"},
		"the driver refuses: asks again after a while": {"delete volume",
			errclass.Mark(errclass.Refused, errors.New("x")), time.Minute, "delete volume"},
		"the driver says NotFound: not taken for deletion": {"delete volume",
			errclass.Mark(errclass.NotFound, errors.New("x")), time.Minute, "delete volume"},
		"the driver breaks: asks again": {"delete volume", errors.New("x"), time.Second, "delete volume"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t)
			w.fail[c.step] = c.err
			next := r.reconcile(t.Context(), "pv")
			if (next.Backoff.Max == 0) != (c.retry == 0) || next.Backoff.First > c.retry {
				t.Errorf("comes back after %+v, want at most %v first", next.Backoff, c.retry)
			}
			if last := w.diary[len(w.diary)-1]; last != c.last {
				t.Errorf("last step %q, want %q", last, c.last)
			}
		})
	}
}

func TestRecordEndsWithPV(t *testing.T) {
	w, r := newWorld(t)
	r.reconcile(t.Context(), "pv")
	if noted, _ := r.engine.Tracker.Of(volume.PV{UID: "pv-uid"}); !noted.Done.VolumeDeleted {
		t.Fatal("the deletion is not noted")
	}
	w.end(r)
	if noted, known := r.engine.Tracker.Of(volume.PV{UID: "pv-uid"}); known || noted.Done != (reclaim.Done{}) {
		t.Errorf("noted of a PV that is gone: %+v", noted)
	}

	// The PV's end is observed before the answer to the write that caused it.
	w, r = newWorld(t)
	w.at("release", func() { w.end(r) })
	r.reconcile(t.Context(), "pv")
	if len(r.engine.Tracker.Records) != 0 {
		t.Errorf("noted of a PV that is gone: %+v", r.engine.Tracker.Records)
	}
}

// Another program removes the finalizer, and the PV goes while the driver works.
func TestPVEndDuringDeleteVolumeRepeatsNoCall(t *testing.T) {
	for _, when := range []string{"at once", "when the driver has answered", "after the run"} {
		t.Run("its end is reported "+when, func(t *testing.T) {
			w, r := newWorld(t)
			w.alter(r, terminate)
			last := w.stored["pv"]
			tell := func(now string) {
				if when == now {
					pvEvents{r}.Deleted(last, true)
				}
			}
			w.before = func(what string) {
				switch what {
				case "delete volume":
					delete(w.stored, "pv")
					tell("at once")
				case "release":
					tell("when the driver has answered")
					w.fail[what] = kube.ErrGone
				}
			}
			r.reconcile(t.Context(), "pv")
			tell("after the run")
			r.reconcile(t.Context(), "pv") // its end enqueued it
			calls := len(w.diary)
			w.diary = slices.DeleteFunc(w.diary, func(what string) bool { return what == "release" })
			w.expect(t, "read claim", "read pv", "delete volume")
			if when == "at once" && calls != len(w.diary) {
				t.Error("a PV that is known to be gone is written to")
			}
			if n := &r.engine.Tracker; len(n.Tombstones) != 0 || len(n.Records) != 0 {
				t.Errorf("still remembered: %+v, %+v", n.Tombstones, n.Records)
			}
		})
	}
}

func TestNewUIDStartsNewRecord(t *testing.T) {
	w, r := newWorld(t)
	r.reconcile(t.Context(), "pv")
	w.diary = nil
	w.alter(r, func(pv *volume.PV) { pv.UID, pv.Handle = types.UID("second"), "vol-2" })
	if noted, known := r.engine.Tracker.Of(volume.PV{UID: "pv-uid"}); known || noted.Done != (reclaim.Done{}) {
		t.Errorf("noted of the PV before: %+v", noted)
	}
	r.reconcile(t.Context(), "pv")
	w.expect(t, reclaims()...)
	if others := r.engine.Handles.Names("vol-1"); len(others) > 0 {
		t.Errorf("the old handle is still held by %v", others)
	}
}

func TestProtectionHasItsOwnLoop(t *testing.T) {
	w, r := newWorld(t)
	w.alter(r, strip)
	r.reconcile(t.Context(), "pv")
	w.expect(t)
	r.protect(t.Context(), "pv")
	w.expect(t, "protect")
	r.protect(t.Context(), "pv")
	w.expect(t, "protect") // the cache lags behind the first write
	w.alter(r, retain)
	r.protect(t.Context(), "pv")
	w.expect(t, "protect") // the new decision needs no finalizer
}

func TestNotFoundIsDeleted(t *testing.T) {
	w, r := newWorldWith(t, Config{NotFoundIsDeleted: true})
	w.fail["delete volume"] = errclass.Mark(errclass.Refused, errors.New("x"))
	r.reconcile(t.Context(), "pv")
	w.expect(t, "read claim", "read pv", "delete volume")
	w.diary = nil
	w.fail["delete volume"] = errclass.Mark(errclass.NotFound, errors.New("x"))
	r.reconcile(t.Context(), "pv")
	w.expect(t, reclaims()...)
}

// TestDeleteVolumeThatHangsEnds: a Deleter that ignores all but the end of its context is asked again.
func TestDeleteVolumeThatHangsEnds(t *testing.T) {
	w, r := newWorldWith(t, Config{CallTimeout: time.Millisecond})
	w.works = func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	r.reconcile(t.Context(), "pv")
	w.expect(t, "read claim", "read pv", "delete volume")
	w.diary, w.works = nil, nil
	r.reconcile(t.Context(), "pv")
	w.expect(t, reclaims()...)
}

func TestDeleteVolumeIsNeverConcurrent(t *testing.T) {
	w, r := newWorld(t)
	other := sibling()
	w.join(r, other)
	var nested []string
	w.before = func(what string) {
		if what != "delete volume" || nested != nil {
			return
		}
		nested = []string{}
		outer := w.diary
		w.diary = nil
		w.pv, w.others["pv"] = other, *w.stored["pv"]
		if next := r.reconcile(t.Context(), "other"); next != controller.Soon() {
			t.Errorf("the other PV, whose volume is busy, comes back after %+v", next)
		}
		w.pv = w.others["pv"]
		nested, w.diary = append(nested, w.diary...), outer
	}
	r.reconcile(t.Context(), "pv")
	if !slices.Contains(nested, "read other") || slices.Contains(nested, "delete volume") {
		t.Errorf("during the call for one PV, the calls for the other are %q, want its reads alone", nested)
	}
}

func TestOwnerAdoptsCompanionFinalizer(t *testing.T) {
	w, r := newWorld(t)
	w.pv.Phase, w.pv.HasFinalizer, w.pv.HasCompanionFinalizer = volume.PhaseBound, false, true
	w.store(r, w.pv)
	r.protect(t.Context(), "pv")
	w.expect(t, "adopt")
	if want := []string{volume.Finalizer, volume.CompanionFinalizer}; !slices.Equal(w.patched, want) {
		t.Errorf("patched %q, want %q", w.patched, want)
	}
}
