package reclaim

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// A role removes its own finalizers: an owner both, a companion its own, and the owner's once the volume is deleted.
func TestFinalizersByRole(t *testing.T) {
	both := released().PV
	both.HasCompanionFinalizer = true
	owners, own := []string{volume.Finalizer, volume.CompanionFinalizer}, []string{volume.CompanionFinalizer}
	for role, want := range map[volume.Role]struct{ always, afterDeletion []string }{
		volume.RoleOwner:     {owners, owners},
		volume.RoleCompanion: {own, []string{volume.CompanionFinalizer, volume.Finalizer}},
		volume.RoleObserver:  {},
		volume.RoleUnknown:   {},
	} {
		rules := Rules{Role: role}
		if got := rules.Finalizers(both); !slices.Equal(got, want.always) {
			t.Errorf("role %s removes %v, want %v", role, got, want.always)
		}
		if got := rules.finalizersAfterDeletion(both); !slices.Equal(got, want.afterDeletion) {
			t.Errorf("role %s removes %v once the volume is deleted, want %v", role, got, want.afterDeletion)
		}
	}
	both.HasFinalizer = false
	if got := (Rules{Role: volume.RoleCompanion}).finalizersAfterDeletion(both); !slices.Equal(got, own) {
		t.Errorf("without the owner's, a companion removes %v", got)
	}
}

// The brake counts the volumes that this process is to delete.
func TestDue(t *testing.T) {
	same := func(*volume.PV) {}
	for name, c := range map[string]struct {
		rules  Rules
		change func(*volume.PV)
		due    bool
	}{
		"an owner's":                         {Rules{Role: volume.RoleOwner}, same, true},
		"a held PV":                          {Rules{Role: volume.RoleOwner}, held, false},
		"in mode release":                    {Rules{Role: volume.RoleOwner, Mode: ModeRelease}, same, false},
		"an ignored static PV":               {Rules{Role: volume.RoleOwner, IgnoreStatic: true}, by(""), false},
		"a static one":                       {Rules{Role: volume.RoleOwner}, by(""), true},
		"a companion's before the PV is":     {Rules{Role: volume.RoleCompanion}, same, false},
		"a companion's when the PV is":       {Rules{Role: volume.RoleCompanion}, terminating, true},
		"an observer's, of a terminating PV": {Rules{Role: volume.RoleObserver}, terminating, false},
		"an observer's":                      {Rules{Role: volume.RoleObserver}, same, false},
	} {
		pv := released().PV
		c.change(&pv)
		if got := c.rules.due(pv); got != c.due {
			t.Errorf("%s: due %t", name, got)
		}
	}
}

// Of two writes that the cache does not show yet, the later one counts.
func TestLaterOfTwoWritesCounts(t *testing.T) {
	for name, c := range map[string]struct {
		added, removed string
		want           Done
	}{
		"added last":        {"13", "12", Done{Protected: true}},
		"removed last":      {"12", "13", Done{Removed: true}},
		"added alone":       {"12", "", Done{Protected: true}},
		"the cache has it":  {"10", "9", Done{}},
		"removed alone":     {"9", "11", Done{Removed: true}},
		"neither is stored": {"", "", Done{}},
		"added before, removed in a version that cannot be compared": {"9", "no number", Done{Removed: true}},
	} {
		pv := released().PV // of version 10
		tracker := NewTracker(owner())
		a := tracker.see(&pv).edit()
		a.Adding, a.Removing = &Expectation{Version: c.added}, &Expectation{Version: c.removed}
		if memory, known := tracker.Of(pv); !known || memory.Done != c.want {
			t.Errorf("%s: %+v, want %+v", name, memory.Done, c.want)
		}
	}
}

// An observation counts in its order: released before it was terminating, protected after our removal.
func TestHistoryOfPV(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*volume.PV)
		removing *Expectation
		want     History
	}{
		"released and protected":       {alive, nil, History{SeenAlive: true, SeenReleased: true, SeenProtected: true}},
		"terminating":                  {terminating, nil, History{SeenProtected: true}},
		"in use":                       {in(volume.PhaseBound), nil, History{SeenAlive: true, SeenProtected: true}},
		"protected before our removal": {alive, &Expectation{Version: "11"}, History{SeenAlive: true, SeenReleased: true}},
		"protected after our removal": {alive, &Expectation{Version: "9"},
			History{SeenAlive: true, SeenReleased: true, SeenProtected: true}},
	} {
		pv := released().PV
		c.change(&pv)
		tracker := NewTracker(owner())
		tracker.Records[pv.UID] = &Record{Activity: &Activity{Removing: c.removing}}
		if h := tracker.see(&pv).History; h != c.want {
			t.Errorf("%s: %+v, want %+v", name, h, c.want)
		}
	}
	pv := released().PV
	tracker := NewTracker(owner())
	tracker.Records[pv.UID] = &Record{History: History{SeenProtected: true},
		Activity: &Activity{Removing: &Expectation{Version: "11"}}}
	if h := tracker.see(&pv).History; !h.SeenProtected {
		t.Errorf("protected after our removal, as an event showed before: %+v", h)
	}
}

// afterItsEnd returns a session on a PV that vanished unprotected, which waits for its first answer.
func afterItsEnd(t *testing.T) (*Engine, pvs, *Session) {
	t.Helper()
	pv := inUse("a", unguarded)
	e, cache := engineOf(pv)
	last := pv
	last.Phase, last.Terminating = volume.PhaseReleased, true
	delete(cache, "a")
	e.PVDeleted(&last, true, now())
	at := leading()
	f, found := e.Facts(Item{Name: "a", Gone: pv.UID}, at)
	if !found {
		t.Fatal("the end is not known")
	}
	s, step := e.Begin(f, at)
	if step.Result != Asks {
		t.Fatalf("asks nothing: %+v", step)
	}
	return e, cache, s
}

// A PV that takes over the volume of a vanished PV during the session keeps it, and so does the end of the term.
func TestTakenOverVolumeIsKept(t *testing.T) {
	at := leading()
	const otherCase = "a PV that names the volume in another case"
	for name, meanwhile := range map[string]func(*Engine, pvs){
		"a PV that stays": func(e *Engine, cache pvs) {
			taker := inUse("taker")
			taker.Handle, cache["taker"] = "vol-a", &taker
			e.PVAdded(&taker, now())
		},
		otherCase: func(e *Engine, cache pvs) {
			taker := inUse("taker")
			taker.Handle, cache["taker"] = "VOL-A", &taker
			e.PVAdded(&taker, now())
		},
		"a PV that came and went, and named the volume in another case": func(e *Engine, _ pvs) {
			taker := inUse("taker", handle("VOL-A"))
			e.PVAdded(&taker, now())
			e.PVDeleted(&taker, true, now())
		},
		"a PV that came and went": func(e *Engine, _ pvs) {
			taker := inUse("taker", handle("vol-a"))
			e.PVAdded(&taker, now())
			e.PVDeleted(&taker, true, now())
		},
		"a PV that names another volume now": func(e *Engine, cache pvs) {
			taker := inUse("taker")
			cache["taker"] = &taker
			e.PVAdded(&taker, now())
			update(e, cache, "taker", handle("vol-a"))
		},
		"the end was forgotten": func(e *Engine, _ pvs) { e.Lead(false); e.Lead(true) },
	} {
		e, cache, s := afterItsEnd(t)
		meanwhile(e, cache)
		want := ReasonLeftToSibling
		if name == otherCase {
			want = ReasonVolumeLeftBehind // it may be another volume
		}
		if step := e.Answer(s, Reply{Outcome: OK}, at); step.Decision.Reason != want || !step.Settled {
			t.Errorf("%s: %s because %s, settled %t", name, step.Decision.Action, step.Decision.Reason, step.Settled)
		}
	}
	e, _, s := afterItsEnd(t)
	if step := e.Answer(s, Reply{Outcome: OK}, at); step.Result != Asks {
		t.Errorf("nobody takes it over: %s because %s", step.Decision.Action, step.Decision.Reason)
	}
}

// The finalizers are removed by UID alone after the volume is deleted, and otherwise only from the version that was
// read.
func TestFinalizerPatchPrecondition(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*volume.PV)
		done   bool
		bound  bool
	}{
		"kept":    {func(pv *volume.PV) { pv.Policy, pv.Terminating = volume.PolicyRetain, true }, false, true},
		"deleted": {terminating, true, false},
	} {
		pv := released().PV
		c.change(&pv)
		e, _ := engineOf(pv)
		if c.done {
			e.Tracker.done(pv.UID, func(d *Done) { *d = done(pv, true, false) })
		}
		at := leading()
		f, _ := e.Facts(Item{Name: pv.Name}, at)
		s, _ := e.Begin(f, at)
		if !slices.Equal(s.Ask.Remove, []string{volume.Finalizer}) || s.Ask.Bound != c.bound {
			t.Errorf("%s: removes %v, bound %t", name, s.Ask.Remove, s.Ask.Bound)
		}
	}
}

// Only another program's removal of the finalizer, from a PV that needs it, is a loss.
func TestRemovalsByOthers(t *testing.T) {
	long := now().Add(-ContestWithin - 1)
	for name, c := range map[string]struct {
		activity Activity
		change   func(*volume.PV)
		stripped bool
		removals int
		// contested: the PV is, after the event.
		contested bool
	}{
		"somebody's":                    {removals: 1},
		"ours":                          {activity: Activity{Removing: &Expectation{Version: "12"}}},
		"ours, not answered yet":        {activity: Activity{Removing: &Expectation{}}},
		"after ours and an adding":      {activity: Activity{Removing: &Expectation{Version: "10"}}, removals: 1},
		"of a PV that is kept":          {change: of(volume.PolicyRetain)},
		"of a volume that is gone":      {activity: Activity{Done: Done{VolumeDeleted: true}}},
		"from a PV that is terminating": {change: terminating, stripped: true},
		"ours, from a PV that is terminating": {activity: Activity{Removing: &Expectation{Version: "12"}},
			change: terminating},
		"the second in a while":    {activity: Activity{Removals: []time.Time{now()}}, removals: 2},
		"the third in a while":     {activity: Activity{Removals: []time.Time{now(), now()}}, removals: 3, contested: true},
		"the third in a long time": {activity: Activity{Removals: []time.Time{long, long}}, removals: 1},
		"from a PV that is contested": {activity: Activity{Removals: []time.Time{now(), now()}, ContestedAt: long},
			removals: 2, contested: true},
		"none: it was not there before": {change: guarded},
	} {
		before := inUse("a")
		before.ResourceVersion = "11"
		pv := before
		pv.ResourceVersion, pv.HasFinalizer = "13", false
		if c.change != nil {
			c.change(&pv)
		}
		before.HasFinalizer = !pv.HasFinalizer
		tracker := NewTracker(owner())
		tracker.Records[pv.UID] = &Record{Activity: &c.activity}
		turned := tracker.changed(&before, &pv, now())
		r := tracker.Records[pv.UID]
		if r.History.Stripped != c.stripped || len(r.Activity.Removals) != c.removals ||
			r.Activity.ContestedAt.IsZero() == c.contested || turned {
			t.Errorf("%s: stripped %t, removals %v, contested since %v, of all PVs: %t", name, r.History.Stripped,
				r.Activity.Removals, r.Activity.ContestedAt, turned)
		}
	}
}

// A change that neither adds nor removes the finalizer leaves the record of additions and removals.
func TestUnrelatedChangeIsNoRemoval(t *testing.T) {
	pv := inUse("a", unguarded)
	tracker := NewTracker(owner())
	tracker.see(&pv).edit().Adding = &Expectation{}
	tracker.Records[pv.UID].Activity.ContestedAt = now()
	tracker.changed(&pv, &pv, now())
	if a := tracker.Records[pv.UID].Activity; a.Adding == nil || a.ContestedAt.IsZero() || len(a.Removals) > 0 {
		t.Errorf("without the finalizer: %+v", a)
	}
	tracker.Records[pv.UID].Activity.ContestedAt = time.Time{}
	if tracker.changed(&pv, &pv, now()); len(tracker.Records[pv.UID].Activity.Removals) > 0 {
		t.Error("what was not there was removed")
	}
}

// The answer to our removal shows whether the PV was protected after it.
func TestProtectionEventBeforeRemovalAnswer(t *testing.T) {
	for version, protected := range map[string]bool{"11": false, "13": true} {
		pv := released().PV
		tracker := NewTracker(owner())
		tracker.see(&pv)
		ask := Ask{Decision: do(RemoveFinalizer, ReasonPolicyKeepsVolume), PV: pv, Remove: []string{volume.Finalizer}}
		tracker.expect(ask)
		pv.ResourceVersion = version
		tracker.see(&pv)
		tracker.Answered(ask, Reply{Outcome: OK, Version: "12"})
		if h := tracker.Records[pv.UID].History; h.SeenProtected != protected {
			t.Errorf("protected in version %s, removed in version 12: %+v", version, h)
		}
	}
}

// The ends of several PVs that had one name are settled separately, and each counts once.
func TestEndsOfOneNameAreSeparate(t *testing.T) {
	e, _ := engineOf()
	var gone []volume.PV
	for _, uid := range []types.UID{"first", "second"} {
		pv := inUse("a", uidIs(uid), handle("vol-"+string(uid)))
		e.PVDeleted(&pv, true, now())
		e.PVDeleted(&pv, true, now())
		gone = append(gone, pv)
	}
	if got, want := e.Items("a"), []Item{{"a", "first"}, {"a", "second"}, {Name: "a"}}; !slices.Equal(got, want) {
		t.Errorf("under the name: %v, want %v", got, want)
	}
	taker := inUse("taker", handle("vol-first"))
	if fx := e.PVAdded(&taker, now()); !slices.Contains(fx.Keys, "a") {
		t.Errorf("another PV takes a volume over: to decide on %v", fx.Keys)
	}
	e.Tracker.Forget(&gone[0])
	if got, want := e.Items("a"), []Item{{"a", "second"}, {Name: "a"}}; !slices.Equal(got, want) {
		t.Errorf("the first is settled: %v, want %v", got, want)
	}
}
