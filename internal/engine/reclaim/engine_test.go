package reclaim

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// engineOf returns the engine of a leader that has received the events of these PVs, with its cache. Its brake allows
// one deletion.
func engineOf(all ...volume.PV) (*Engine, pvs) {
	cache := pvs{}
	e := New(owner(), NewBreaker(1, time.Minute), cache)
	e.Lead(true)
	e.Breaker.Learn("lease", false, now())
	for _, pv := range all {
		cache[pv.Name] = &pv
		e.PVAdded(&pv, now())
	}
	return e, cache
}

// update changes a PV in the cache and delivers the event.
func update(e *Engine, cache pvs, name string, changes ...func(*volume.PV)) Effects {
	before := cache[name]
	pv := altered(*before, changes)
	pv.ResourceVersion += "0"
	cache[name] = &pv
	return e.PVUpdated(before, &pv, now())
}

// inUse returns a PV that is bound to a claim, altered.
func inUse(name string, alter ...func(*volume.PV)) volume.PV {
	pv := released().PV
	pv.Name, pv.UID, pv.Handle, pv.Phase = name, types.UID(name), "vol-"+name, volume.PhaseBound
	return altered(pv, alter)
}

func uidIs(uid types.UID) func(*volume.PV) { return func(pv *volume.PV) { pv.UID = uid } }

func siblingsOf(t *testing.T, e *Engine, name string) (names []string) {
	t.Helper()
	f, found := e.Facts(Item{Name: name}, leading())
	if !found {
		t.Fatalf("PV %s is not known", name)
	}
	for _, pv := range f.Siblings {
		names = append(names, pv.Name)
	}
	return names
}

// A PV is a sibling of the PVs that name its present handle, and of no others.
func TestSiblingsFollowHandle(t *testing.T) {
	e, cache := engineOf(inUse("a"), inUse("b"))
	update(e, cache, "b", handle("vol-a"))
	if got := siblingsOf(t, e, "a"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("b names the volume of a: siblings %v", got)
	}
	update(e, cache, "b", handle("VOL-A"))
	if got := siblingsOf(t, e, "a"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("b names the volume of a in another case: siblings %v", got)
	}
	update(e, cache, "a", handle("Vol-A"), in(volume.PhaseReleased))
	if _, step := beginOn(t, e, Item{Name: "a"}); step.Decision != waiting(ReasonSharedHandle) {
		t.Errorf("b is bound and names the volume: %+v", step.Decision)
	}
	update(e, cache, "b", handle("vol-b"))
	if got := siblingsOf(t, e, "a"); len(got) > 0 {
		t.Errorf("b names its own volume again: siblings %v", got)
	}
	update(e, cache, "b", ofDriver("other"), handle("vol-a"))
	if got := siblingsOf(t, e, "a"); len(got) > 0 {
		t.Errorf("b names a volume of another driver: siblings %v", got)
	}
	if _, kept := e.Handles.First[""]; kept {
		t.Error("PVs without a volume of this driver are kept by it")
	}
	if others := e.Handles.Names("vol-b"); len(others) > 0 {
		t.Errorf("%v have the volume that nobody names", others)
	}
}

// Each VolumeAttachment counts until its own end.
func TestAttachmentCount(t *testing.T) {
	e, _ := engineOf(inUse("a"))
	count := func() int {
		f, _ := e.Facts(Item{Name: "a"}, leading())
		return f.Attachments
	}
	e.AttachmentAdded("a")
	e.AttachmentAdded("a")
	e.AttachmentAdded("") // of an inline volume
	e.AttachmentDeleted("")
	if fx := e.AttachmentDeleted("a"); count() != 1 || !slices.Contains(fx.Keys, "a") {
		t.Errorf("one of two ends: %d left, to decide on %v", count(), fx.Keys)
	}
	if fx := e.AttachmentDeleted("foreign"); len(fx.Keys) > 0 {
		t.Errorf("one of another driver ends: to decide on %v", fx.Keys)
	}
	e.AttachmentDeleted("a")
	if count() != 0 || len(e.Attached) > 0 {
		t.Errorf("both end: %d left, remembered %v", count(), e.Attached)
	}
	e.AttachmentAdded("a")
	if count() != 1 {
		t.Errorf("attached again: %d", count())
	}
}

// A new leader counts the volumes that became deletable long before it leads, because an earlier leader may have
// stopped their deletion without being able to write to the Lease. A person's release by the annotation counts for all
// of them.
func TestNewLeaderCountsDueVolumes(t *testing.T) {
	for name, c := range map[string]struct {
		due  []string
		on   bool
		want Brake
	}{
		"more than the limit": {due: []string{"a", "b"}, want: BrakeOn},
		"as many":             {due: []string{"a"}, want: BrakeOff},
		"resumed":             {due: []string{"a", "b"}, on: true, want: BrakeOff},
	} {
		e, cache := engineOf(inUse("a"), inUse("b"), inUse("c"))
		e.Lead(false)
		for _, pv := range c.due {
			update(e, cache, pv, in(volume.PhaseReleased))
		}
		e.Lead(true)
		later := now().Add(time.Hour)
		if c.on {
			e.LearnBrake("lease", true, later)
		}
		write, _ := e.LearnBrake("lease", false, later)
		if e.Breaker.State != c.want || write != (c.want == BrakeOn) {
			t.Errorf("%s: state %v, write %t", name, e.Breaker.State, write)
		}
		if _, changed := e.LearnBrake("lease", false, later); changed {
			t.Errorf("%s: the second read changes it", name)
		}
	}
}

// The brake counts a volume once when it becomes deletable, by any kind of event.
func TestBrakeCountsDueVolumes(t *testing.T) {
	release := in(volume.PhaseReleased)
	e, cache := engineOf(inUse("a"), inUse("b"), inUse("c"))
	if fx := update(e, cache, "a"); fx.Due || fx.Tripped || len(e.Breaker.Recent) != 0 {
		t.Errorf("a PV in use: %+v, counted %v", fx, e.Breaker.Recent)
	}
	if fx := update(e, cache, "a", release); !fx.Due || fx.Tripped || len(e.Breaker.Recent) != 1 {
		t.Errorf("the first that is released: %+v, counted %v", fx, e.Breaker.Recent)
	}
	if fx := update(e, cache, "a"); fx.Due {
		t.Errorf("a change of one that was released before: %+v", fx)
	}
	if fx := update(e, cache, "b", release); !fx.Due || !fx.Tripped {
		t.Errorf("the second, which is too many: %+v", fx)
	}
	another := inUse("c")
	another.UID = "another"
	release(&another)
	e.Breaker.Learn("lease", true, now())
	e.Breaker.Learn("lease", false, now())
	e.Breaker.Count("first", now())
	before := cache["c"]
	cache["c"] = &another
	if fx := e.PVUpdated(before, &another, now()); !fx.Tripped || !slices.Contains(fx.Keys, "c") {
		t.Errorf("one that takes the name of another: %+v", fx)
	}
}

// The brake counts the volume of a PV that vanished unprotected, if the volume may be deleted.
func TestBrakeCountsVanishedPVs(t *testing.T) {
	history := func(e *Engine) *History { return &e.Tracker.Records["a"].History }
	unprotected := func(alter ...func(*volume.PV)) volume.PV {
		return altered(inUse("a", unguarded, in(volume.PhaseReleased), terminating), alter)
	}
	for name, c := range map[string]struct {
		last          volume.PV
		edit          func(*Engine)
		unseen, trips bool
	}{
		"vanished":            {last: unprotected(), trips: true},
		"held":                {last: unprotected(held)},
		"in use":              {last: unprotected(in(volume.PhaseBound))},
		"policy Retain":       {last: unprotected(of(volume.PolicyRetain))},
		"not claimed":         {last: unprotected(unclaimedPV)},
		"another driver's":    {last: unprotected(by("other"))},
		"its end is not seen": {last: unprotected(), unseen: true},
		"protected before":    {last: unprotected(), edit: func(e *Engine) { history(e).SeenProtected = true }},
		"never seen alive":    {last: unprotected(), edit: func(e *Engine) { history(e).SeenAlive = false }},
		"such volumes stay":   {last: unprotected(), edit: func(e *Engine) { e.Rules.ReclaimUnprotected = false }},
	} {
		t.Run(name, func(t *testing.T) {
			alive := inUse("a", unguarded, by(c.last.ProvisionedBy))
			e, cache := engineOf(alive)
			if c.edit != nil {
				c.edit(e)
			}
			e.Breaker.Count("another", now())
			delete(cache, "a")
			if fx := e.PVDeleted(&c.last, !c.unseen, now()); fx.Tripped != c.trips {
				t.Errorf("trips: %t, want %t", fx.Tripped, c.trips)
			}
			if c.trips {
				e.Breaker.forget()
				if fx := e.PVDeleted(&c.last, true, now()); fx.Tripped || len(e.Breaker.Recent) != 1 {
					t.Errorf("as many as are allowed: trips: %t, counted %v", fx.Tripped, e.Breaker.Recent)
				}
			}
		})
	}
}

// The record of a PV that is gone is dropped, unless its volume may be left.
func TestPVDeletedKeepsTombstone(t *testing.T) {
	for name, c := range map[string]struct {
		change               func(*volume.PV)
		follower, remembered bool
	}{
		"policy Delete and claimed": {change: func(*volume.PV) {}, remembered: true},
		"policy Retain":             {change: of(volume.PolicyRetain)},
		"not claimed":               {change: unclaimedPV},
		"another driver's":          {change: by("other")},
		"another replica leads":     {change: func(*volume.PV) {}, follower: true},
	} {
		t.Run(name, func(t *testing.T) {
			pv := inUse("a")
			c.change(&pv)
			e, cache := engineOf(pv)
			e.Lead(!c.follower)
			delete(cache, "a")
			fx := e.PVDeleted(&pv, true, now())
			if got := len(e.Items("a")) == 2; got != c.remembered || (fx.Forgotten == "") != c.remembered {
				t.Errorf("remembered: %t, forgotten: %q", got, fx.Forgotten)
			}
		})
	}
}

// A list of a proxy may lack a PV that exists. The record of work that was done for the PV stays.
func TestPVReturnsAfterListThatLackedIt(t *testing.T) {
	pv := inUse("a")
	e, cache := engineOf(pv)
	e.Tracker.done(pv.UID, func(d *Done) { d.VolumeDeleted = false; d.Protected = true })
	delete(cache, "a")
	e.PVDeleted(&pv, false, now())
	cache["a"] = &pv
	e.PVAdded(&pv, now())
	if got := e.Items("a"); len(got) != 1 || got[0].Gone != "" {
		t.Errorf("items %+v", got)
	}
	if _, _, known := e.Tracker.ofEnd(pv.UID); known {
		t.Error("the PV counts as gone")
	}
	if _, known := e.Tracker.Of(pv); !known || !e.Tracker.Records[pv.UID].read().Done.Protected {
		t.Error("its record is dropped")
	}
}

// PVs of other drivers are not kept, enqueue no keys and do not count for the brake, in any state.
func TestPVsOfOtherDriversAreNotRecorded(t *testing.T) {
	foreign := inUse("foreign", ofDriver("other"), by("other"))
	e, cache := engineOf(foreign)
	for what, fx := range map[string]Effects{
		"added":           e.PVAdded(&foreign, now()),
		"released":        update(e, cache, "foreign", in(volume.PhaseReleased), unguarded),
		"named otherwise": update(e, cache, "foreign", handle("another")),
	} {
		if len(fx.Keys) > 0 || fx.Due || fx.Tripped {
			t.Errorf("%s: %+v", what, fx)
		}
	}
	released := *cache["foreign"]
	e.PVAdded(&released, now()) // like after a restart
	if n := len(e.Tracker.Records) + len(e.Handles.First) + len(e.Handles.More) + len(e.Breaker.Recent); n > 0 {
		t.Errorf("recorded: %v, %v, counted %v", e.Tracker.Records, e.Handles, e.Breaker.Recent)
	}
	if names := e.Names(); len(names) > 0 {
		t.Errorf("to decide on: %v", names)
	}
	e.PVDeleted(&released, true, now())
	if names := e.Names(); len(names) > 0 {
		t.Errorf("to decide on after its end: %v", names)
	}
}

// A PV that takes the name of another ends that PV, whose siblings may then continue.
func TestPVUpdatedWithNewUID(t *testing.T) {
	other, kept := inUse("b"), inUse("a")
	other.Handle, other.Phase, kept.Policy = "vol-a", volume.PhaseReleased, volume.PolicyRetain
	e, cache := engineOf(kept, other)
	next := inUse("a")
	next.UID, next.Handle = "next", "vol-next"
	cache["a"] = &next
	fx := e.PVUpdated(&kept, &next, now())
	if !slices.Contains(fx.Keys, "a") || !slices.Contains(fx.Keys, "b") || fx.Forgotten != "a" || fx.Tripped {
		t.Errorf("%+v", fx)
	}
	if len(siblingsOf(t, e, "b")) > 0 || e.Tracker.Tracks("a") || !e.Tracker.Tracks("next") {
		t.Errorf("b has the siblings %v; tracked: %v", siblingsOf(t, e, "b"), e.Tracker.Records)
	}
}

// A program that removes the finalizer from several PVs concerns all of them.
func TestDriverContestEnqueuesAllPVs(t *testing.T) {
	e, cache := engineOf(inUse("a"), inUse("b"), inUse("c"), inUse("d"))
	for _, name := range []string{"a", "b"} {
		e.Tracker.Records[types.UID(name)].edit().ContestedAt = now()
	}
	e.Tracker.Records["c"].edit().Removals = []time.Time{now(), now()}
	fx := update(e, cache, "c", unguarded)
	for _, name := range []string{"a", "b", "c", "d"} {
		if !e.Tracker.Contested || !slices.Contains(fx.Keys, name) {
			t.Errorf("contested: %t, to decide on %v", e.Tracker.Contested, fx.Keys)
		}
	}
}

// Nearly every handle has one PV, which needs no set of its own.
func TestHandleOfOnePVHasNoSet(t *testing.T) {
	h := NewHandles()
	keeps := func(string) bool { return true }
	h.Set("vol", "a", keeps)
	h.Set("vol", "a", keeps)
	if len(h.First) != 1 || len(h.More) != 0 {
		t.Errorf("one PV: %+v", h)
	}
}
