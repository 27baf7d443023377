package intree

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// cached is a watch cache, which has reached every resourceVersion or none.
type cached struct {
	pvs     map[string]*PV
	reached bool
}

func (c cached) Get(name string) (*PV, bool) { pv, found := c.pvs[name]; return pv, found }
func (c cached) Reached(string) bool         { return c.reached }

// holding returns a cache of these PVs, and a tracker that has seen them.
func holding(pvs ...PV) (cached, *Tracker) {
	c, t := cached{pvs: map[string]*PV{}}, NewTracker()
	for _, pv := range pvs {
		c.pvs[pv.Name] = &pv
		t.Added(&pv, c)
	}
	return c, t
}

func TestTwinDeletionProvesVolumeDeletion(t *testing.T) {
	for name, c := range map[string]struct {
		alter func(*PV)
		final bool
		want  bool
	}{
		"policy Delete and released, its end seen":      {func(*PV) {}, true, true},
		"its end was not seen":                          {func(*PV) {}, false, false},
		"its policy was Retain":                         {of(volume.PolicyRetain), true, false},
		"failed earlier: may have been ended by a user": {in(volume.PhaseFailed), true, false},
		"the PV controller had not synced it":           {in(volume.PhasePending), true, false},
		"it is no twin":                                 {twinOf("another"), true, false},
	} {
		pv, twin := due(), made(of(volume.PolicyDelete), in(volume.PhaseReleased), going, c.alter)
		cache, tracker := holding(pv)
		tracker.Deleted(&twin, c.final, cache)
		if got := tracker.Tombstones[pv.UID].VolumeDeleted; got != c.want {
			t.Errorf("%s: the volume counts as deleted: %v, want %v", name, got, c.want)
		}
	}
}

func TestEventsEnqueuePVs(t *testing.T) {
	pv, other := due(), sibling()
	cache, tracker := holding(pv, other)
	enqueued := func(what string, wake Wake, changed bool, want ...string) {
		t.Helper()
		slices.Sort(wake.PVs)
		if wake.OtherChanged != changed || !slices.Equal(slices.Compact(wake.PVs), want) {
			t.Errorf("%s: %+v, want %v, another manager's coming or going %v", what, wake, want, changed)
		}
	}
	now := pv
	now.Held = true
	if wake := tracker.Updated(&pv, &pv, cache); len(wake.PVs) != 2 {
		t.Errorf("two PVs have the volume: %v", wake.PVs)
	}
	enqueued("a change", tracker.Updated(&pv, &now, cache), false, other.Name, pv.Name)
	foreign := now
	foreign.Writer = WriterOther
	enqueued("the first finalizer of another", tracker.Updated(&now, &foreign, cache), true, other.Name, pv.Name)
	enqueued("the same once more", tracker.Updated(&foreign, &foreign, cache), false, other.Name, pv.Name)
	moved := foreign
	moved.Source = Source{9}
	enqueued("another volume", tracker.Updated(&foreign, &moved, cache), false, pv.Name)
	if names := tracker.Volumes[pv.Source]; len(names) != 1 {
		t.Errorf("the volume that it named has %v", names)
	}
	again := pv
	again.UID, again.Writer = "newer", WriterNone
	enqueued("another PV of the name", tracker.Updated(&moved, &again, cache), true, other.Name, pv.Name)
	enqueued("its end", tracker.Deleted(&again, true, cache), false, other.Name, pv.Name)
}

func TestDeletedPVIsForgotten(t *testing.T) {
	behind, tracker := holding()
	tracker.expect(PV{Name: "a", UID: "a", ResourceVersion: "1"}, behind)
	tracker.expect(PV{Name: "b", UID: "b", ResourceVersion: "2"}, cached{reached: true})
	tracker.volumeDeleted("a", claimRef())
	tracker.failed("a", PV{}, now(), time.Second, time.Minute)
	tracker.yielded(PV{UID: "a"}, true, now())
	tracker.DeletionAccepted["a"], tracker.ForeignTwin["a"] = struct{}{}, struct{}{}
	tracker.expect(PV{Name: "c", UID: "c", ResourceVersion: "3"}, behind)
	a, other := PV{Name: "a", UID: "a", Source: source}, PV{Name: "d", UID: "d", Source: source}
	tracker.Added(&a, behind)
	tracker.Added(&other, behind)
	tracker.Added(&PV{Name: "of no known volume", UID: "e"}, behind)
	tracker.Deleted(&a, true, behind)
	if len(tracker.Volumes) != 1 || len(tracker.Volumes[source]) != 1 || len(tracker.Expectations) != 1 {
		t.Errorf("of others is left: %v, %v", tracker.Volumes, tracker.Expectations)
	}
	tracker.Deleted(&other, true, behind)
	tracker.Deleted(&PV{Name: "c", UID: "c"}, true, behind)
	if n := len(tracker.Expectations) + len(tracker.Tombstones) + len(tracker.Failures) + len(tracker.DeletionAccepted) +
		len(tracker.YieldedSince) + len(tracker.ForeignTwin) + len(tracker.Volumes); n > 0 {
		t.Errorf("left: %+v", tracker)
	}
}

// A session that ends after its PVs leaves no record of them. A twin that the watch does not show yet is not gone.
func TestSettledPVIsForgotten(t *testing.T) {
	t.Parallel()
	pv, twin := due(), made()
	for sentence, c := range map[string]struct {
		shown    []PV
		expected bool
		want     []types.UID
	}{
		"both are there":       {[]PV{pv, twin}, false, nil},
		"the twin is gone":     {[]PV{pv}, false, []types.UID{twin.UID}},
		"the twin was created": {[]PV{pv}, true, nil},
		"others have their names": {[]PV{{Name: pv.Name, UID: "x"}, {Name: twin.Name, UID: "y"}}, false,
			[]types.UID{pv.UID, twin.UID}},
		"both are gone": {nil, false, []types.UID{pv.UID, twin.UID}},
	} {
		cache, tracker := holding(c.shown...)
		tracker.DeletionAccepted[twin.UID] = struct{}{}
		if c.expected {
			tracker.expect(twin, cache)
		}
		gone := tracker.Settle(Facts{PV: pv, Twin: twin}, cache)
		if _, kept := tracker.DeletionAccepted[twin.UID]; !slices.Equal(gone, c.want) ||
			kept == slices.Contains(c.want, twin.UID) {
			t.Errorf("%s: gone %v, record %t", sentence, gone, kept)
		}
	}
	_, tracker := holding()
	if gone := tracker.Settle(Facts{PV: pv}, cached{}); !slices.Equal(gone, []types.UID{pv.UID}) {
		t.Errorf("without a twin, %v are gone", gone)
	}
}

func TestExpectationUntilWatchCatchesUp(t *testing.T) {
	pv := due()
	cache, tracker := holding(pv)
	written := pv
	written.Writer, written.ResourceVersion = WriterNone, "11"
	tracker.expect(written, cache)
	older := pv
	older.ResourceVersion = "9"
	tracker.expect(older, cache)
	written.ResourceVersion = "12"
	tracker.expect(written, cache)
	if f, _ := tracker.Observe(pv.Name, cache, now()); f.PV != written {
		t.Errorf("observed %+v, want what was written", f.PV)
	}
	cache.reached = true
	if f, _ := tracker.Observe(pv.Name, cache, now()); f.PV != pv || len(tracker.Expectations) > 0 {
		t.Errorf("observed %+v, want what the watch shows", f.PV)
	}
}

// With two successive PVs of one name, an expectation for the first does not hide the second.
func TestExpectationsPerUID(t *testing.T) {
	cache, tracker := holding(due())
	first, second := due(), due()
	first.UID, first.ResourceVersion, second.ResourceVersion = "first", "90", "11"
	tracker.expect(first, cache)
	tracker.expect(second, cache)
	if f, _ := tracker.Observe(due().Name, cache, now()); f.PV != second {
		t.Errorf("observed %+v, want the second", f.PV)
	}
}

// A twin is decided on with its original, and alone only if the original does not exist.
func TestObserveByName(t *testing.T) {
	static, recreated := bound(), due()
	static.ProvisionedBy, recreated.UID = "", "recreated"
	naming := static
	naming.Name, naming.UID, naming.Original, naming.Source = "naming", "naming", "pv", Source{9}
	for name, c := range map[string]struct {
		pvs         []PV
		of          string
		found, twin bool
	}{
		"nothing":                             {nil, "pv", false, false},
		"a static PV":                         {[]PV{static}, "pv", false, false},
		"a static PV that names another":      {[]PV{due(), naming}, "naming", false, false},
		"a PV and its twin":                   {[]PV{due(), made()}, "pv", true, true},
		"a twin whose original exists":        {[]PV{due(), made()}, made().Name, false, false},
		"a twin whose original is gone":       {[]PV{made()}, made().Name, true, true},
		"a twin whose original is another PV": {[]PV{recreated, made()}, made().Name, true, true},
	} {
		cache, tracker := holding(c.pvs...)
		f, found := tracker.Observe(c.of, cache, now())
		if found != c.found || f.TwinFound != c.twin || len(f.Siblings) > 0 {
			t.Errorf("%s: found %t, with a twin %t, siblings %v", name, found, f.TwinFound, f.Siblings)
		}
	}
}

// The cache may be ahead of the events: its state of a sibling counts.
func TestSiblingsFollowTheCache(t *testing.T) {
	cache, tracker := holding(due(), sibling())
	siblings := func() int { f, _ := tracker.Observe("pv", cache, now()); return len(f.Siblings) }
	if siblings() != 1 {
		t.Fatal("the sibling is not known")
	}
	moved := sibling()
	moved.Source = Source{9}
	if cache.pvs["other"] = &moved; siblings() != 0 {
		t.Error("a PV of another volume is a sibling")
	}
	if delete(cache.pvs, "other"); siblings() != 0 {
		t.Error("a PV that is gone is a sibling")
	}
}

// The session does not repeat a deletion of a twin that the API server accepted.
func TestAcceptedDeletionMakesTwinTerminating(t *testing.T) {
	cache, tracker := holding(due(), made())
	tracker.DeletionAccepted[made().UID] = struct{}{}
	if f, _ := tracker.Observe("pv", cache, now()); !f.Twin.Terminating {
		t.Error("the twin is not terminating")
	}
}

// Another program's finalizer on the PV's own twin shows that it deletes such volumes. Its finalizer on another PV
// shows nothing about this one.
func TestForeignFinalizerOnTwin(t *testing.T) {
	twin, other := made(), made()
	other.TwinOf = "another"
	for name, c := range map[string]struct {
		pv   PV
		want int
	}{"its twin": {twin, 1}, "a PV that names it": {other, 0}} {
		cache, tracker := holding(due())
		c.pv.Writer = WriterOther
		if tracker.Added(&c.pv, cache); len(tracker.ForeignTwin) != c.want {
			t.Errorf("%s: %v", name, tracker.ForeignTwin)
		}
	}
}

// The time for which a PV is left to another program starts again after an interruption.
func TestYieldedSinceRestarts(t *testing.T) {
	tracker, later := NewTracker(), now().Add(time.Hour)
	tracker.yielded(due(), true, now())
	if since := tracker.yielded(due(), true, later); since != now() {
		t.Errorf("left since %v", since)
	}
	tracker.yielded(due(), false, later)
	if since := tracker.yielded(due(), true, later); since != later {
		t.Errorf("left again since %v", since)
	}
}
