package reclaim

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// change stores a changed PV, as the watch would deliver it.
func (w *world) change(r *Controller, version string, change func(*volume.PV)) {
	pv := *w.stored[w.pv.Name]
	pv.ResourceVersion = version
	change(&pv)
	w.pv = pv
	w.store(r, pv)
}

// contender removes the finalizer from PVs as another program would, and has a Controller add it again.
type contender struct {
	t       *testing.T
	w       *world
	r       *Controller
	version int
}

func newContender(t *testing.T, pvs ...string) *contender {
	w, r := newWorld(t)
	c := &contender{t, w, r, 11}
	w.change(r, "11", bound)
	for _, name := range pvs {
		pv := w.pv
		pv.Name, pv.UID, pv.Handle, pv.Claim.Name = name, types.UID(name+"-uid"), "vol-"+name, "claim-"+name
		w.store(r, pv)
	}
	return c
}

// edit delivers a changed PV from the watch.
func (c *contender) edit(pv string, change func(*volume.PV)) {
	c.version++
	now := *c.w.stored[pv]
	now.ResourceVersion = fmt.Sprint(c.version)
	change(&now)
	c.w.store(c.r, now)
}

// strip removes the finalizer this many times; adds reports whether it is added again after the last time.
func (c *contender) strip(pv string, times int) (adds bool) {
	c.t.Helper()
	for range times {
		before := len(c.w.diary)
		c.edit(pv, strip)
		c.r.protect(c.t.Context(), pv)
		if adds = len(c.w.diary) > before; adds {
			c.edit(pv, protect)
		}
	}
	return adds
}

// reason returns the reason of the decision on a PV.
func (c *contender) reason(pv string) Reason {
	c.t.Helper()
	e, found := c.r.Explain(pv)
	if !found {
		c.t.Fatalf("PV %s is not there", pv)
	}
	return e.Reason
}

func TestContestOfOnePV(t *testing.T) {
	c := newContender(t, "second", "third")
	if !c.strip("pv", reclaim.ContestAfter-1) {
		t.Fatal("contested too early")
	}
	if c.strip("pv", 1) || c.reason("pv") != reclaim.ReasonPVContested {
		t.Fatalf("the contest continues: %s", c.reason("pv"))
	}
	if !c.strip("second", reclaim.ContestAfter-1) || c.reason("second") != reclaim.ReasonBound {
		t.Errorf("another PV is not protected any more: %s", c.reason("second"))
	}
	// The finalizer on another PV does not end the loop on this one.
	c.edit("third", strip)
	c.edit("third", protect)
	if c.reason("pv") != reclaim.ReasonPVContested {
		t.Errorf("a PV is not contested any more by what happens to another: %s", c.reason("pv"))
	}
	// The finalizer on this PV ends its contest.
	c.edit("pv", protect)
	if !c.strip("pv", 1) {
		t.Error("does not protect after the contest")
	}
	if c.r.engine.Tracker.Contested {
		t.Error("the driver is contested")
	}
}

func TestContestsOfSeveralPVsContestDriver(t *testing.T) {
	c := newContender(t, "second", "third", "fourth")
	for i, pv := range []string{"pv", "second", "third"} {
		if c.r.engine.Tracker.Contested {
			t.Fatalf("the driver is contested after %d PVs", i)
		}
		c.strip(pv, reclaim.ContestAfter)
	}
	if !c.r.engine.Tracker.Contested {
		t.Fatal("the driver is not contested")
	}
	if c.strip("fourth", 1) || c.reason("fourth") != reclaim.ReasonFinalizerContested ||
		c.reason("pv") != reclaim.ReasonFinalizerContested {
		t.Errorf("the contest continues: %s, %s", c.reason("fourth"), c.reason("pv"))
	}
	// The finalizer on any of the PVs ends the contest of all.
	c.edit("fourth", protect)
	if c.r.engine.Tracker.Contested || c.reason("pv") != reclaim.ReasonProtect {
		t.Errorf("the contest is not over: %s", c.reason("pv"))
	}
	if !c.strip("fourth", 1) {
		t.Error("does not protect after the contest")
	}
}

// A person may clear the finalizers of many PVs once or twice.
func TestSingleRemovalsAreNoContest(t *testing.T) {
	pvs := []string{"a", "b", "c", "d", "e", "f"}
	c := newContender(t, pvs...)
	for _, pv := range pvs {
		if !c.strip(pv, reclaim.ContestAfter-1) {
			t.Errorf("PV %s is not protected any more", pv)
		}
	}
	if c.r.engine.Tracker.Contested {
		t.Error("contested")
	}
}

// Loops on single PVs at different times do not add up to a contest of the driver.
func TestDistantContestsDoNotContestDriver(t *testing.T) {
	c := newContender(t, "second", "third")
	for _, pv := range []string{"pv", "second", "third"} {
		c.strip(pv, reclaim.ContestAfter)
		c.w.clock.Step(reclaim.ContestWithin/2 + time.Second)
	}
	if c.r.engine.Tracker.Contested || c.reason("third") != reclaim.ReasonPVContested {
		t.Errorf("contested: %s", c.reason("third"))
	}
}

func TestDistantRemovalsAreNoContest(t *testing.T) {
	w, r := newWorld(t)
	w.change(r, "11", bound)
	for i := range 2 * reclaim.ContestAfter {
		w.change(r, fmt.Sprint(20+2*i), strip)
		if noted, _ := r.engine.Tracker.Of(w.pv); noted.Contested {
			t.Fatalf("contested after %d removals", i+1)
		}
		r.protect(t.Context(), "pv")
		w.change(r, fmt.Sprint(21+2*i), protect)
		w.clock.Step(reclaim.ContestWithin/2 + time.Second)
	}
}

func TestHistoryAfterFinalizerRemoval(t *testing.T) {
	released := reclaim.History{SeenAlive: true, SeenReleased: true}
	protected, stripped := released, released
	protected.SeenProtected, stripped.SeenProtected, stripped.Stripped = true, true, true
	cases := map[string]struct {
		happens func(*testing.T, *world, *Controller)
		want    reclaim.History
	}{
		"no program": {func(_ *testing.T, w *world, r *Controller) { w.change(r, "11", terminate) }, protected},
		"another program, while it was terminating": {func(_ *testing.T, w *world, r *Controller) {
			w.change(r, "11", terminate)
			w.change(r, "12", strip)
		}, stripped},
		"another program, while it was contested": {func(_ *testing.T, w *world, r *Controller) {
			r.engine.Tracker.Contested = true
			w.change(r, "11", terminate)
			w.change(r, "12", strip)
		}, protected},
		"we, under Retain": {func(t *testing.T, w *world, r *Controller) {
			w.change(r, "11", retain)
			r.reconcile(t.Context(), "pv")
			w.change(r, "111", strip)
		}, released},
		"we, and the event came before the answer": {func(t *testing.T, w *world, r *Controller) {
			w.change(r, "11", retain)
			w.at("drop", func() { w.change(r, "111", strip) })
			r.reconcile(t.Context(), "pv")
		}, released},
		"we, but another program added it again before the answer": {func(t *testing.T, w *world, r *Controller) {
			w.change(r, "11", retain)
			w.at("drop", func() {
				w.change(r, "111", strip)
				w.change(r, "112", protect)
			})
			r.reconcile(t.Context(), "pv")
		}, protected},
		"perhaps we, the answer was lost": {func(t *testing.T, w *world, r *Controller) {
			w.change(r, "11", retain)
			w.fail["drop"] = errors.New("timeout")
			r.reconcile(t.Context(), "pv")
			w.change(r, "111", strip)
		}, protected},
		"not we, we were refused": {func(t *testing.T, w *world, r *Controller) {
			w.change(r, "11", retain)
			w.fail["drop"] = fmt.Errorf("x: %w", kube.ErrChanged)
			r.reconcile(t.Context(), "pv")
			w.change(r, "111", strip)
		}, protected},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t)
			c.happens(t, w, r)
			if noted, _ := r.engine.Tracker.Of(volume.PV{UID: "pv-uid"}); noted.History != c.want {
				t.Errorf("history %+v, want %+v", noted.History, c.want)
			}
		})
	}
}

func TestVanishedUnprotectedPV(t *testing.T) {
	all := []string{"list attachments", "list PVs", "read claim", "delete volume"}
	for name, c := range map[string]struct {
		cfg Config
		// before happens before the PV vanishes, and after when it has; unseen means that its last state is not known.
		before, after func(*world, *Controller)
		unseen        bool
		want          []string
	}{
		"its volume is deleted":           {want: all},
		"not with its last state unknown": {unseen: true},
		"not on a replica that does not lead": {before: func(_ *world, r *Controller) { r.lead(false) },
			after: func(_ *world, r *Controller) { r.lead(true) }},
		"not when it was first seen terminating": {before: func(w *world, r *Controller) {
			w.end(r)
			r.engine.Tracker.ForgetTombstones()
			w.alter(r, terminate, func(pv *volume.PV) { pv.UID = "second" })
		}},
		"not when another PV of the volume was there": {before: func(w *world, r *Controller) { w.store(r, sibling()) }},
		"not when another PV of the volume came and went since": {after: func(w *world, r *Controller) {
			other := sibling()
			w.store(r, other)
			w.vanish(r, "other", true)
			r.engine.Tracker.Forget(&other)
		}},
		"not when the API server knows another PV of the volume": {
			before: func(w *world, _ *Controller) { w.pvs.content = []volume.PV{sibling()} }, want: all[:2]},
		"not when the list of PVs is long and the watch behind": {
			before: func(w *world, _ *Controller) { w.pvs = page[[]volume.PV]{version: "1000"} }, want: all[:2]},
		"not while its claim lives": {
			before: func(w *world, _ *Controller) { w.claim.Found, w.claim.UID = true, "claim-uid" }, want: all[:3]},
		"not while it is attached": {before: func(_ *world, r *Controller) { attachmentEvents{r}.Added("pv") }},
		"not while a list shows an attachment": {
			before: func(w *world, _ *Controller) { w.list.content = map[string]int{"pv": 1} }, want: all[:1]},
		"not when turned off":             {cfg: Config{ReclaimUnprotected: new(bool)}},
		"not in role observer by default": {cfg: Config{Role: volume.RoleObserver}},
		"with a PV of the same name there again": {after: func(w *world, r *Controller) {
			again := w.pv
			again.UID, again.Handle, again.Phase, again.HasFinalizer = "second", "vol-2", volume.PhaseBound, true
			w.store(r, again)
		}, want: all},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorldWith(t, c.cfg)
			w.end(r) // the protected PV of newWorld
			r.engine.Tracker.ForgetTombstones()
			w.alter(r, strip, func(pv *volume.PV) { pv.UID = "fresh" })
			if c.before != nil {
				c.before(w, r)
			}
			w.vanish(r, "pv", !c.unseen)
			if c.after != nil {
				c.after(w, r)
			}
			w.diary = nil
			r.reconcile(t.Context(), "pv")
			w.expect(t, c.want...)
			w.diary = nil
			r.reconcile(t.Context(), "pv")
			if slices.Contains(w.diary, "delete volume") {
				t.Errorf("deleted twice: %q", w.diary)
			}
		})
	}
}

// locked is a cache that reports whether the engine is locked while it is read.
type locked struct {
	cacheOf
	mu   *sync.Mutex
	free *bool
}

func (c locked) Get(name string) (*volume.PV, bool) {
	if c.mu.TryLock() {
		c.mu.Unlock()
		*c.free = true
	}
	return c.cacheOf.Get(name)
}

// The PV from before our write, with a record that no longer expects that write, would be protected again. So no event
// may come between the two reads.
func TestPVAndRecordReadUnderOneLock(t *testing.T) {
	w, r := newWorld(t)
	w.alter(r, func(pv *volume.PV) { pv.HasFinalizer, pv.ResourceVersion = false, "1" })
	free := false
	r.engine.PVs = locked{cacheOf{w}, &r.mu, &free}
	if _, needed := r.beginProtect("pv"); !needed {
		t.Fatal("an unprotected PV needs no protection")
	}
	r.reconcile(t.Context(), "pv")
	if _, found := r.Explain("pv"); !found {
		t.Fatal("the PV is not known")
	}
	if free {
		t.Error("an event can come between the reads of a PV and of its record")
	}
}
