package reclaim

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// crowd is a controller of PVs that name one volume. It counts the work of events and decisions.
type crowd struct {
	pvs
	e     *Engine
	queue []string
	has   map[string]bool
	// woken counts the keys that events returned, read the PVs that were read from the cache, wrote the writes, and began
	// the sessions that asked for a call.
	woken, read, wrote, began int
}

func (f *crowd) Get(name string) (*volume.PV, bool) { f.read++; return f.pvs.Get(name) }

func (f *crowd) happens(fx Effects) {
	f.woken += len(fx.Keys)
	for _, key := range fx.Keys {
		if !f.has[key] {
			f.has[key], f.queue = true, append(f.queue, key)
		}
	}
}

func (f *crowd) change(name string, change func(*volume.PV)) {
	f.happens(update(f.e, f.pvs, name, change))
}

// work decides on all PVs that are due.
func (f *crowd) work() {
	for len(f.queue) > 0 {
		name := f.queue[0]
		f.queue, f.has[name] = f.queue[1:], false
		at := leading()
		facts, found := f.e.Facts(Item{Name: name}, at)
		if !found {
			continue
		}
		s, step := f.e.Begin(facts, at)
		f.e.Abandon(s)
		switch {
		case step.Protect:
			a, _ := f.e.BeginProtect(name, at)
			f.wrote++
			f.e.AnswerProtect(a, Reply{Outcome: OK, Version: "2"}, at)
			f.change(name, guarded)
		case step.Result == Asks:
			f.began++
		}
	}
}

func member(i int) string { return fmt.Sprintf("pv-%04d", i) }

// The work on the PVs of one volume, such as static PVs of a file system, grows with their number and not with its
// square: a change of one of them concerns the others only if it is the last that keeps the volume.
func TestWorkGrowsWithPVsOfOneVolume(t *testing.T) {
	for _, n := range []int{10, 100, 1000} {
		f := &crowd{pvs: pvs{}, has: map[string]bool{}}
		f.e = New(owner(), NewBreaker(0, 0), f)
		f.e.Lead(true)
		each := func(do func(name string)) func() {
			return func() {
				for i := range n {
					do(member(i))
					f.work()
				}
			}
		}
		release := in(volume.PhaseReleased)
		for _, phase := range []struct {
			what string
			do   func()
			// The limits are per PV.
			woken, read, wrote, began int
		}{
			{"all are created", each(func(name string) {
				pv := inUse(name, uidIs(types.UID(name)), handle("fs-1"), unguarded, by(""))
				f.pvs[name] = &pv
				f.happens(f.e.PVAdded(&pv, now()))
			}), 2, 30, 1, 0},
			{"all change", each(func(name string) { f.change(name, func(*volume.PV) {}) }), 1, 10, 0, 0},
			{"all are attached", each(f.e.AttachmentAdded), 0, 0, 0, 0},
			{"all but one are released", func() {
				for i := range n - 1 {
					f.change(member(i), release)
					f.work()
				}
			}, 1, 10, 0, 0},
			{"all but one are detached", func() {
				for i := range n - 1 {
					f.happens(f.e.AttachmentDeleted(member(i)))
					f.work()
				}
			}, 1, 10, 0, 0},
			{"the last is attached no more", func() { f.happens(f.e.AttachmentDeleted(member(n - 1))); f.work() }, 1, 1, 0, 0},
			{"the last is released", func() { f.change(member(n-1), release); f.work() }, 2, n + 10, 0, 1},
			{"all are gone", func() {
				for i := range n {
					last := f.pvs[member(i)]
					delete(f.pvs, last.Name)
					f.happens(f.e.PVDeleted(last, true, now()))
				}
			}, 2, 10, 0, 0},
		} {
			f.woken, f.read, f.wrote, f.began = 0, 0, 0, 0
			phase.do()
			t.Logf("%d PVs, %s: %d woken, %d read from the cache, %d written, %d begun", n, phase.what, f.woken, f.read,
				f.wrote, f.began)
			if f.woken > n*phase.woken+2 || f.read > n*phase.read+10 || f.wrote != n*phase.wrote || f.began != n*phase.began {
				t.Errorf("%d PVs, %s: the work does not grow with the PVs", n, phase.what)
			}
		}
	}
}

// Each of these changes makes a PV due that waits for another of its volume, at once.
func TestChangesOfOnePVThatMakeAnotherDue(t *testing.T) {
	twin := func(pv *volume.PV) {
		pv.Name, pv.TwinOf, pv.Phase, pv.Claim = "pv-reclaim", "pv-uid", volume.PhasePending, released().PV.Claim
	}
	bound := in(volume.PhaseBound)
	release := in(volume.PhaseReleased)
	gone := func(e *Engine, cache pvs, name string) Effects {
		last := cache[name]
		delete(cache, name)
		return e.PVDeleted(last, true, now())
	}
	changed := func(change func(*volume.PV)) func(*Engine, pvs, string) Effects {
		return func(e *Engine, cache pvs, name string) Effects { return update(e, cache, name, change) }
	}
	for what, c := range map[string]struct {
		other   func(*volume.PV)
		happens func(e *Engine, cache pvs, name string) Effects
		due     bool
	}{
		"it is released":                       {bound, changed(release), true},
		"it is gone":                           {bound, gone, true},
		"its hold is removed":                  {held, changed(func(pv *volume.PV) { pv.Held = false }), true},
		"it gets a hold":                       {nil, changed(held), false},
		"it names another volume":              {bound, changed(handle("vol-2")), true},
		"it is another driver's":               {bound, changed(ofDriver("other")), true},
		"it changes, and keeps it":             {bound, changed(func(*volume.PV) {}), false},
		"it becomes a twin":                    {bound, changed(twinAs(twin)), true},
		"a twin changes":                       {twin, changed(func(*volume.PV) {}), true},
		"a twin is gone":                       {twin, gone, true},
		"the claim that it belongs to changes": {nil, changed(claimUID("next")), true},
		"it goes while it is to be deleted":    {nil, gone, true},
		"it changes while it is to be deleted": {nil, changed(func(*volume.PV) {}), false},
		"its attachment ends": {nil, func(e *Engine, _ pvs, name string) Effects {
			e.AttachmentAdded(name)
			return e.AttachmentDeleted(name)
		}, true},
		"one of its attachments ends": {nil, func(e *Engine, _ pvs, name string) Effects {
			e.AttachmentAdded(name)
			e.AttachmentAdded(name)
			return e.AttachmentDeleted(name)
		}, false},
		"its attachment ends, and the other's is left": {nil, func(e *Engine, _ pvs, name string) Effects {
			e.AttachmentAdded("pv")
			e.AttachmentAdded(name)
			return e.AttachmentDeleted(name)
		}, false},
		"it goes while it is attached": {nil, func(e *Engine, cache pvs, name string) Effects {
			e.AttachmentAdded(name)
			return gone(e, cache, name)
		}, true},
	} {
		other := sibling()
		if c.other != nil {
			c.other(&other)
		}
		e, cache := engineOf(released().PV, other)
		fx := c.happens(e, cache, other.Name)
		if slices.Contains(fx.Keys, "pv") != c.due {
			t.Errorf("%s: to decide on %q", what, fx.Keys)
		}
	}
}

// twinAs changes all but the name of a PV.
func twinAs(change func(*volume.PV)) func(*volume.PV) {
	return func(pv *volume.PV) { name := pv.Name; change(pv); pv.Name = name }
}

// If a PV keeps the volume, a decision reads a few of its PVs. Otherwise, it reads all of them.
func TestKeepersStandForAllPVsOfVolume(t *testing.T) {
	all := []volume.PV{released().PV}
	for i := range 6 {
		pv := sibling()
		pv.Name, pv.UID = member(i), types.UID(member(i))
		if i%2 == 0 {
			pv.Phase = volume.PhaseBound
		}
		all = append(all, pv)
	}
	e, cache := engineOf(all...)
	if got := siblingsOf(t, e, "pv"); fmt.Sprint(got) != "[pv-0000 pv-0002 pv-0004]" {
		t.Errorf("siblings %v, want those that keep the volume", got)
	}
	for i := range 6 {
		update(e, cache, member(i), in(volume.PhaseReleased))
	}
	if got := siblingsOf(t, e, "pv"); len(got) != 6 {
		t.Errorf("siblings %v, want all", got)
	}
	cached := *cache[member(3)]
	cached.Phase = volume.PhaseBound
	cache[member(3)] = &cached // its event is still to come
	f, _ := e.Facts(Item{Name: "pv"}, leading())
	if d := Decide(f, now()); !f.shared() || d.Action == DeleteVolume {
		t.Errorf("the cache shows one that keeps the volume: %+v", d)
	}
}
