package twins

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// cached is a watch cache that has reached some versions.
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

func TestWhichEndOfATwinShowsThatTheVolumeIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		alter func(*PV)
		final bool
		want  bool
	}{
		"policy Delete and released, its end seen":  {func(*PV) {}, true, true},
		"its end was not seen":                      {func(*PV) {}, false, false},
		"its policy was Retain":                     {of(volume.PolicyRetain), true, false},
		"it had failed: somebody may have ended it": {in(volume.PhaseFailed), true, false},
		"the PV controller had not synced it":       {in(volume.PhasePending), true, false},
		"it is no twin":                             {func(pv *PV) { pv.TwinOf = "another" }, true, false},
	} {
		pv, twin := due(), made()
		twin.Policy, twin.Phase, twin.Terminating = volume.PolicyDelete, volume.PhaseReleased, true
		c.alter(&twin)
		cache, tracker := holding(pv)
		tracker.Deleted(&twin, c.final, cache)
		if got := tracker.Tombstones[pv.UID].VolumeDeleted; got != c.want {
			t.Errorf("%s: the volume counts as deleted: %v, want %v", name, got, c.want)
		}
	}
}

func TestWhichPVsAnEventEnqueues(t *testing.T) {
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
	enqueued("a change", tracker.Updated(&pv, &now, cache), false, other.Name, pv.Name)
	foreign := now
	foreign.Writer = WriterOther
	enqueued("the first finalizer of another", tracker.Updated(&now, &foreign, cache), true, other.Name, pv.Name)
	enqueued("the same once more", tracker.Updated(&foreign, &foreign, cache), false, other.Name, pv.Name)
	moved := foreign
	moved.Source = Source{9}
	enqueued("another volume", tracker.Updated(&foreign, &moved, cache), false, pv.Name)
	again := pv
	again.UID, again.Writer = "newer", WriterNone
	enqueued("another PV of the name", tracker.Updated(&moved, &again, cache), true, other.Name, pv.Name)
	enqueued("its end", tracker.Deleted(&again, true, cache), false, other.Name, pv.Name)
}

func TestWhatIsRememberedOfAPVIsForgotten(t *testing.T) {
	behind, tracker := holding()
	tracker.expect(PV{Name: "a", UID: "a", ResourceVersion: "1"}, behind)
	tracker.expect(PV{Name: "b", UID: "b", ResourceVersion: "2"}, cached{reached: true})
	tracker.volumeDeleted("a", claimRef())
	tracker.failed("a", PV{}, now(), time.Second, time.Minute)
	tracker.yielded(PV{UID: "a"}, true, now())
	tracker.DeletionAccepted["a"], tracker.ForeignTwin["a"] = struct{}{}, struct{}{}
	tracker.Deleted(&PV{Name: "a", UID: "a"}, true, behind)
	if n := len(tracker.Expectations) + len(tracker.Tombstones) + len(tracker.Failures) + len(tracker.DeletionAccepted) +
		len(tracker.YieldedSince) + len(tracker.ForeignTwin) + len(tracker.Volumes); n > 0 {
		t.Errorf("left: %+v", tracker)
	}
}

func TestAWriteCountsUntilTheWatchHasReachedIt(t *testing.T) {
	pv := due()
	cache, tracker := holding(pv)
	written := pv
	written.Writer, written.ResourceVersion = WriterNone, "11"
	tracker.expect(written, cache)
	older := pv
	older.ResourceVersion = "9"
	tracker.expect(older, cache)
	if f, _ := tracker.Observe(pv.Name, cache, now()); f.PV != written {
		t.Errorf("observed %+v, want what was written", f.PV)
	}
	cache.reached = true
	if f, _ := tracker.Observe(pv.Name, cache, now()); f.PV != pv || len(tracker.Expectations) > 0 {
		t.Errorf("observed %+v, want what the watch shows", f.PV)
	}
}
