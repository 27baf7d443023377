package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// change stores a changed PV, as the watch would show it.
func (w *world) change(r *Reclaimer, version string, change func(*volume.PV)) {
	pv := *w.stored[w.pv.Name]
	pv.ResourceVersion = version
	change(&pv)
	w.pv = pv
	w.store(r, pv)
}

func bound(pv *volume.PV)   { pv.Phase = volume.PhaseBound }
func strip(pv *volume.PV)   { pv.HasFinalizer = false }
func protect(pv *volume.PV) { pv.HasFinalizer = true }

// contender has somebody remove the finalizer from PVs, which a Reclaimer adds again.
type contender struct {
	t       *testing.T
	w       *world
	r       *Reclaimer
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

// edit has the watch show a changed PV.
func (c *contender) edit(pv string, change func(*volume.PV)) {
	c.version++
	now := *c.w.stored[pv]
	now.ResourceVersion = fmt.Sprint(c.version)
	change(&now)
	c.w.store(c.r, now)
}

// strip removes the finalizer so many times; adds tells whether it is added again after the last time.
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

// reason is what is decided on a PV.
func (c *contender) reason(pv string) Reason {
	c.t.Helper()
	e, found := c.r.Explain(pv)
	if !found {
		c.t.Fatalf("PV %s is not there", pv)
	}
	return e.Decision.Reason
}

func TestALoopOnOnePVIsThatPVs(t *testing.T) {
	c := newContender(t, "second", "third")
	if !c.strip("pv", contestAfter-1) {
		t.Fatal("contested too early")
	}
	if c.strip("pv", 1) || c.reason("pv") != ReasonPVContested {
		t.Fatalf("the war goes on: %s", c.reason("pv"))
	}
	if !c.strip("second", contestAfter-1) || c.reason("second") != ReasonBound {
		t.Errorf("another PV is not protected any more: %s", c.reason("second"))
	}
	// Somebody adds the finalizer to another PV, which ends no loop on this one.
	c.edit("third", strip)
	c.edit("third", protect)
	if c.reason("pv") != ReasonPVContested {
		t.Errorf("a PV is not contested any more by what happens to another: %s", c.reason("pv"))
	}
	// Somebody adds it to this one: the contest is over.
	c.edit("pv", protect)
	if !c.strip("pv", 1) {
		t.Error("does not protect after the contest")
	}
	if c.r.observer.notes.inContest() {
		t.Error("the driver is contested")
	}
}

func TestAProgramThatWorksOnSeveralPVsContestsTheDriver(t *testing.T) {
	c := newContender(t, "second", "third", "fourth")
	for i, pv := range []string{"pv", "second", "third"} {
		if c.r.observer.notes.inContest() {
			t.Fatalf("the driver is contested after %d PVs", i)
		}
		c.strip(pv, contestAfter)
	}
	if !c.r.observer.notes.inContest() {
		t.Fatal("the driver is not contested")
	}
	if c.strip("fourth", 1) || c.reason("fourth") != ReasonFinalizerContested || c.reason("pv") != ReasonFinalizerContested {
		t.Errorf("the war goes on: %s, %s", c.reason("fourth"), c.reason("pv"))
	}
	// Somebody else adds the finalizer to any of them: peace for all.
	c.edit("fourth", protect)
	if c.r.observer.notes.inContest() || c.reason("pv") != ReasonProtect {
		t.Errorf("the contest is not over: %s", c.reason("pv"))
	}
	if !c.strip("fourth", 1) {
		t.Error("does not protect after the contest")
	}
}

// A person who clears the finalizers of many PVs once, or twice, is no program.
func TestSingleRemovalsFromManyPVsAreNoContest(t *testing.T) {
	pvs := []string{"a", "b", "c", "d", "e", "f"}
	c := newContender(t, pvs...)
	for _, pv := range pvs {
		if !c.strip(pv, contestAfter-1) {
			t.Errorf("PV %s is not protected any more", pv)
		}
	}
	if c.r.observer.notes.inContest() {
		t.Error("contested")
	}
}

// Loops on single PVs, each at another time, do not add up to one on the driver.
func TestLoopsThatAreFarApartAreNoContestOfTheDriver(t *testing.T) {
	c := newContender(t, "second", "third")
	for _, pv := range []string{"pv", "second", "third"} {
		c.strip(pv, contestAfter)
		c.w.clock.Step(contestWithin/2 + time.Second)
	}
	if c.r.observer.notes.inContest() || c.reason("third") != ReasonPVContested {
		t.Errorf("contested: %s", c.reason("third"))
	}
}

func TestStripsThatAreFarApartAreNoContest(t *testing.T) {
	w, r := newWorld(t)
	w.change(r, "11", bound)
	for i := range 2 * contestAfter {
		w.change(r, fmt.Sprint(20+2*i), strip)
		r.protect(t.Context(), "pv")
		w.change(r, fmt.Sprint(21+2*i), protect)
		w.clock.Step(contestWithin/2 + time.Second)
	}
	if noted, _ := r.observer.notes.of(w.pv); noted.contested {
		t.Error("contested")
	}
}

func TestWhoTookTheFinalizerOff(t *testing.T) {
	terminating := func(pv *volume.PV) { pv.Phase, pv.Terminating = volume.PhaseBound, true }
	cases := map[string]struct {
		happens func(*testing.T, *world, *Reclaimer)
		want    History
	}{
		"nobody": {func(_ *testing.T, w *world, r *Reclaimer) { w.change(r, "11", terminating) },
			History{SeenAlive: true, SeenReleased: true, SeenProtected: true}},
		"somebody, while it was terminating": {func(_ *testing.T, w *world, r *Reclaimer) {
			w.change(r, "11", terminating)
			w.change(r, "12", strip)
		}, History{SeenAlive: true, SeenReleased: true, SeenProtected: true, LetGo: true}},
		"somebody, while it was contested": {func(_ *testing.T, w *world, r *Reclaimer) {
			r.observer.notes.contested = true
			w.change(r, "11", terminating)
			w.change(r, "12", strip)
		}, History{SeenAlive: true, SeenReleased: true, SeenProtected: true}},
		"we, under Retain": {func(t *testing.T, w *world, r *Reclaimer) {
			w.change(r, "11", func(pv *volume.PV) { pv.Policy = volume.PolicyRetain })
			r.reclaim(t.Context(), "pv")
			w.change(r, "111", strip)
		}, History{SeenAlive: true, SeenReleased: true}},
		"we, and the event came before the answer": {func(t *testing.T, w *world, r *Reclaimer) {
			w.change(r, "11", func(pv *volume.PV) { pv.Policy = volume.PolicyRetain })
			w.before = func(what string) {
				if what == "drop" {
					w.change(r, "111", strip)
				}
			}
			r.reclaim(t.Context(), "pv")
		}, History{SeenAlive: true, SeenReleased: true}},
		"we, but somebody put it on again before the answer": {func(t *testing.T, w *world, r *Reclaimer) {
			w.change(r, "11", func(pv *volume.PV) { pv.Policy = volume.PolicyRetain })
			w.before = func(what string) {
				if what == "drop" {
					w.change(r, "111", strip)
					w.change(r, "112", protect)
				}
			}
			r.reclaim(t.Context(), "pv")
		}, History{SeenAlive: true, SeenReleased: true, SeenProtected: true}},
		"perhaps we, the answer was lost": {func(t *testing.T, w *world, r *Reclaimer) {
			w.change(r, "11", func(pv *volume.PV) { pv.Policy = volume.PolicyRetain })
			w.fail["drop"] = errors.New("timeout")
			r.reclaim(t.Context(), "pv")
			w.change(r, "111", strip)
		}, History{SeenAlive: true, SeenReleased: true, SeenProtected: true}},
		"not we, we were refused": {func(t *testing.T, w *world, r *Reclaimer) {
			w.change(r, "11", func(pv *volume.PV) { pv.Policy = volume.PolicyRetain })
			w.fail["drop"] = fmt.Errorf("x: %w", kube.ErrChanged)
			r.reclaim(t.Context(), "pv")
			w.change(r, "111", strip)
		}, History{SeenAlive: true, SeenReleased: true, SeenProtected: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t)
			c.happens(t, w, r)
			if noted, _ := r.observer.notes.of(volume.PV{UID: "pv-uid"}); noted.history != c.want {
				t.Errorf("history %+v, want %+v", noted.history, c.want)
			}
		})
	}
}

func TestAPVThatVanishedUnprotected(t *testing.T) {
	vanish := func(w *world, r *Reclaimer, final bool) {
		last := w.stored["pv"]
		delete(w.stored, "pv")
		pvChanges{r.observer}.Deleted(last, final)
	}
	all := []string{"list attachments", "list PVs", "read claim", "delete volume"}
	cases := map[string]struct {
		cfg     Config
		happens func(*world, *Reclaimer)
		want    []string
	}{
		"its volume is deleted":           {Config{}, func(w *world, r *Reclaimer) { vanish(w, r, true) }, all},
		"not with its last state unknown": {Config{}, func(w *world, r *Reclaimer) { vanish(w, r, false) }, nil},
		"not on a replica that does not lead": {Config{}, func(w *world, r *Reclaimer) {
			r.lead(false)
			vanish(w, r, true)
			r.lead(true)
		}, nil},
		"not when it was first seen terminating": {Config{}, func(w *world, r *Reclaimer) {
			w.end(r)
			r.observer.notes.forgetEnds()
			w.pv.UID, w.pv.Terminating = "second", true
			w.store(r, w.pv)
			vanish(w, r, true)
		}, nil},
		"not when another PV of the volume was there": {Config{}, func(w *world, r *Reclaimer) {
			w.store(r, sibling())
			vanish(w, r, true)
		}, nil},
		"not when another PV of the volume came and went since": {Config{}, func(w *world, r *Reclaimer) {
			vanish(w, r, true)
			w.store(r, sibling())
			other := w.stored["other"]
			delete(w.stored, "other")
			pvChanges{r.observer}.Deleted(other, true)
			r.observer.notes.forget(other)
		}, nil},
		"not when the API server knows another PV of the volume": {Config{}, func(w *world, r *Reclaimer) {
			w.pvs.pvs = []volume.PV{sibling()}
			vanish(w, r, true)
		}, all[:2]},
		"not when the list of PVs is long and the watch behind": {Config{}, func(w *world, r *Reclaimer) {
			w.pvs = pvList{version: "1000"}
			vanish(w, r, true)
		}, all[:2]},
		"not while its claim lives": {Config{}, func(w *world, r *Reclaimer) {
			w.claim = ClaimFacts{Found: true, UID: "claim-uid"}
			vanish(w, r, true)
		}, all[:3]},
		"not while it is attached": {Config{}, func(w *world, r *Reclaimer) {
			attachmentChanges{r.observer}.Added(attachment{"pv"})
			vanish(w, r, true)
		}, nil},
		"not while a list shows an attachment": {Config{}, func(w *world, r *Reclaimer) {
			w.list.ofPV = map[string]int{"pv": 1}
			vanish(w, r, true)
		}, all[:1]},
		"not when told not to":            {Config{ReclaimUnprotected: new(bool)}, func(w *world, r *Reclaimer) { vanish(w, r, true) }, nil},
		"not in role observer by default": {Config{Role: volume.RoleObserver}, func(w *world, r *Reclaimer) { vanish(w, r, true) }, nil},
		"with a PV of the same name there again": {Config{}, func(w *world, r *Reclaimer) {
			vanish(w, r, true)
			again := w.pv
			again.UID, again.Handle, again.Phase, again.HasFinalizer = "second", "vol-2", volume.PhaseBound, true
			w.store(r, again)
		}, all},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorldWith(t, c.cfg)
			w.end(r) // the protected one of newWorld
			r.observer.notes.forgetEnds()
			w.pv.UID, w.pv.HasFinalizer = "fresh", false
			w.store(r, w.pv)
			c.happens(w, r)
			w.diary = nil
			r.reclaim(t.Context(), "pv")
			w.expect(t, c.want...)
			w.diary = nil
			r.reclaim(t.Context(), "pv")
			if slices.Contains(w.diary, "delete volume") {
				t.Errorf("deleted twice: %q", w.diary)
			}
		})
	}
}

func TestTheBrake(t *testing.T) {
	clock := testclock.NewFakeClock(now())
	lease := types.NamespacedName{Namespace: "ns", Name: "lease"}
	uid := func(i int) types.UID { return types.UID(fmt.Sprint(i)) }
	released := func() *brake {
		b := newBrake(BrakeConfig{Deletions: 3, Window: time.Minute, Lease: lease}, clock)
		b.lead(true)
		b.learn(false)
		return b
	}
	t.Run("is not known before the Lease was read", func(t *testing.T) {
		b := newBrake(BrakeConfig{Deletions: 3, Window: time.Minute, Lease: lease}, clock)
		b.lead(true)
		if b.State() != BrakeUnknown {
			t.Errorf("state %v", b.State())
		}
	})
	t.Run("is pulled by the one that is too many", func(t *testing.T) {
		b := released()
		for i := range 3 {
			b.count(uid(i))
			b.count(uid(i)) // the same one again is not another one
		}
		if b.State() != BrakeOff {
			t.Fatal("pulled too early")
		}
		b.count(uid(3))
		if b.State() != BrakeOn {
			t.Fatal("not pulled")
		}
	})
	t.Run("counts what falls into the window", func(t *testing.T) {
		b := released()
		for i := range 12 {
			b.count(uid(i))
			clock.Step(21 * time.Second)
		}
		if b.State() != BrakeOff {
			t.Error("pulled by volumes that were due over minutes")
		}
	})
	t.Run("stays on when the Lease could not be told yet", func(t *testing.T) {
		b := released()
		for i := range 4 {
			b.count(uid(i))
		}
		if write, _ := b.learn(false); !write || b.State() != BrakeOn {
			t.Errorf("write %v, state %v", write, b.State())
		}
	})
	t.Run("goes off when a person takes it off, and does not count the same again", func(t *testing.T) {
		b := released()
		for i := range 4 {
			b.count(uid(i))
		}
		b.wrote()
		b.learn(true)
		if _, changed := b.learn(false); !changed || b.State() != BrakeOff {
			t.Fatalf("changed %v, state %v", changed, b.State())
		}
		b.count(uid(5))
		if b.State() != BrakeOff {
			t.Error("pulled by one")
		}
	})
	t.Run("is on after a restart, for the Lease says so", func(t *testing.T) {
		b := newBrake(BrakeConfig{Deletions: 3, Window: time.Minute, Lease: lease}, clock)
		b.lead(true)
		b.learn(true)
		if b.State() != BrakeOn {
			t.Errorf("state %v", b.State())
		}
	})
	t.Run("is pulled by what was due before this replica led", func(t *testing.T) {
		b := newBrake(BrakeConfig{Deletions: 3, Window: time.Minute, Lease: lease}, clock)
		for i := range 4 {
			b.count(uid(i))
		}
		b.lead(true)
		if write, _ := b.learn(false); !write || b.State() != BrakeOn {
			t.Errorf("write %v, state %v", write, b.State())
		}
	})
}

func TestTheBrakeStopsARun(t *testing.T) {
	w, r := newWorldWith(t, Config{Brake: BrakeConfig{Deletions: 1, Lease: types.NamespacedName{Namespace: "ns", Name: "lease"}}})
	if err := r.lookAtBrake(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.diary = nil
	other := sibling()
	other.Handle = "vol-2"
	w.before = func(what string) {
		if what == "read pv" { // right before the driver would be called
			w.store(r, other)
		}
	}
	r.reclaim(t.Context(), "pv")
	w.expect(t, "read claim", "read pv")
	w.diary, w.before = nil, nil
	if err := r.lookAtBrake(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.reclaim(t.Context(), "pv")
	w.expect(t, "read brake", "pull brake")
	w.brakeOn = false
	if err := r.lookAtBrake(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.reclaim(t.Context(), "pv")
	if !slices.Contains(w.diary, "delete volume") {
		t.Errorf("does not go on: %q", w.diary)
	}
}

// Workers that wait for a slow driver must not keep an operator's brake from being read.
func TestTheBrakeIsHeardWhileTheQueueIsFull(t *testing.T) {
	w, r := newWorldWith(t, Config{Brake: BrakeConfig{Deletions: 1, Lease: types.NamespacedName{Namespace: "ns", Name: "lease"}}})
	w.store(r, w.pv)
	r.awake.Store(true)
	for i := range 5000 {
		r.reclaiming.Add(fmt.Sprint("waiting-", i)) // and no worker is free
	}
	w.brakeOn = true
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.lookAtBrake(ctx); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Error("the brake's keeper waited for the workers")
	}
	if r.brake.State() != BrakeOn {
		t.Errorf("the brake is %v", r.brake.State())
	}
}

// changing is a cache in which a PV changes right after it was looked up.
type changing struct {
	cacheOf
	change func()
}

func (c *changing) Get(name string) (*volume.PV, bool) {
	pv, found := c.cacheOf.Get(name)
	if change := c.change; change != nil {
		c.change = nil
		change()
	}
	return pv, found
}

func TestAPVAndItsNotesAreReadAsOne(t *testing.T) {
	w, r := newWorld(t)
	w.pv.HasFinalizer, w.pv.ResourceVersion = false, "1"
	w.store(r, w.pv)
	if c, needed := r.beginProtect("pv"); !needed {
		t.Fatal("an unprotected PV needs no protection")
	} else {
		r.observer.notes.end(c, answer{version: "2"})
	}
	r.observer.pvs = &changing{cacheOf{w}, func() {
		w.pv.HasFinalizer, w.pv.ResourceVersion = true, "2"
		w.store(r, w.pv)
	}}
	// The PV as it was before our write, with notes from which that write is crossed off,
	// would be protected again.
	if _, needed := r.beginProtect("pv"); needed {
		t.Error("a PV that has just been protected is to be protected again")
	}
}
