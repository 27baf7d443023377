package intree

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Tracker holds the records of one process that its watch cache cannot provide, and is not safe for concurrent use. A
// process that starts without them repeats at most a write, a delay, or a twin for a volume that is gone.
type Tracker struct {
	// Volumes holds the names of the PVs of each volume.
	Volumes map[Source]map[string]struct{}
	// Foreign holds the names of the PVs with a finalizer that another program added.
	Foreign map[string]struct{}

	// Tombstones and Failures are keyed by the UID of the PV.
	Tombstones map[types.UID]Tombstone
	Failures   map[types.UID]Failures
	// YieldedSince holds, by the UID of the PV, the time since when it has been left to another program.
	YieldedSince map[types.UID]time.Time
	// ForeignTwin holds the UIDs of PVs to whose twin another program has added its finalizer. That program adds it while
	// the twin's policy is Delete, and removes it as soon as the policy changes.
	ForeignTwin map[types.UID]struct{}
	// DeletionAccepted holds the UIDs of twins whose deletion the API server accepted.
	DeletionAccepted map[types.UID]struct{}
	// Expectations holds, by name, the results of our own writes to PVs until the watch shows them.
	Expectations map[string]PV
}

// Failures is the outcome of tries to delete one volume, with their number.
type Failures struct {
	Failure
	Tries int
}

// NewTracker returns a Tracker without records.
func NewTracker() *Tracker {
	return &Tracker{
		Volumes: map[Source]map[string]struct{}{}, Foreign: map[string]struct{}{},
		Tombstones: map[types.UID]Tombstone{}, Failures: map[types.UID]Failures{}, YieldedSince: map[types.UID]time.Time{},
		ForeignTwin: map[types.UID]struct{}{}, DeletionAccepted: map[types.UID]struct{}{}, Expectations: map[string]PV{},
	}
}

// setForeign records whether a PV has a finalizer that another program added, and reports whether this changes the
// result of Other.
func (t *Tracker) setForeign(name string, foreign bool) (changed bool) {
	before := t.Other()
	if foreign {
		t.Foreign[name] = struct{}{}
	} else {
		delete(t.Foreign, name)
	}
	return before != t.Other()
}

// Other returns whether another program manages the finalizer, as far as the watch shows.
func (t *Tracker) Other() Other {
	if len(t.Foreign) > 0 {
		return OtherPresent
	}
	return OtherAbsent
}

// otherFor is Other for one PV, where a finalizer seen on its twin counts for as long as the PV exists. Otherwise the
// policy of a twin would alternate as fast as the API server accepts the writes.
func (t *Tracker) otherFor(uid types.UID) Other {
	if _, seen := t.ForeignTwin[uid]; seen {
		return OtherPresent
	}
	return t.Other()
}

// Evidence returns the name of a PV that shows that another program manages the finalizer: the first by name, or an
// empty string if no PV does.
func (t *Tracker) Evidence() string {
	if len(t.Foreign) == 0 {
		return ""
	}
	return slices.Min(slices.Collect(maps.Keys(t.Foreign)))
}

// yielded records whether a PV is left to another program, and returns since when.
func (t *Tracker) yielded(pv PV, is bool, now time.Time) time.Time {
	since, was := t.YieldedSince[pv.UID]
	switch {
	case !is:
		delete(t.YieldedSince, pv.UID)
		return time.Time{}
	case !was:
		since = now
		t.YieldedSince[pv.UID] = since
	}
	return since
}

// failed records that the PV controller could not delete the volume of a PV. Each further try waits twice as long, up
// to most.
func (t *Tracker) failed(uid types.UID, twin PV, now time.Time, first, most time.Duration) {
	f := t.Failures[uid]
	rest := first
	for range f.Tries {
		rest = min(2*rest, most)
	}
	f.Tries++
	f.Failure = Failure{Until: now.Add(rest), Message: twin.Message, PluginGone: twin.PluginGone}
	t.Failures[uid] = f
}

// expect records the result of our own write to a PV, unless the watch shows it already.
func (t *Tracker) expect(pv PV, pvs PVs) {
	if pvs.Reached(pv.ResourceVersion) {
		return
	}
	if before := t.Expectations[pv.Name]; before.UID != pv.UID ||
		session.Newer(pv.ResourceVersion, before.ResourceVersion) {
		t.Expectations[pv.Name] = pv
	}
}

// expected returns the result of our own write to a PV, until the watch shows it.
func (t *Tracker) expected(name string, pvs PVs) (PV, bool) {
	pv, found := t.Expectations[name]
	switch {
	case !found:
		return PV{}, false
	case !pvs.Reached(pv.ResourceVersion):
		return pv, true
	}
	delete(t.Expectations, name)
	return PV{}, false
}

// forget drops all records of a PV that is gone.
func (t *Tracker) forget(uid types.UID) {
	delete(t.Tombstones, uid)
	delete(t.Failures, uid)
	delete(t.YieldedSince, uid)
	delete(t.ForeignTwin, uid)
	delete(t.DeletionAccepted, uid)
	maps.DeleteFunc(t.Expectations, func(_ string, pv PV) bool { return pv.UID == uid })
}

// Settle drops the records of the PVs of these facts that are gone, and returns their UIDs. It follows a session,
// because the end of a PV may precede the last answer.
func (t *Tracker) Settle(f Facts, pvs PVs) (gone []types.UID) {
	for _, pv := range []PV{f.PV, f.Twin} {
		if now, _ := t.get(pv.Name, pvs); pv.UID != "" && now.UID != pv.UID {
			t.forget(pv.UID)
			gone = append(gone, pv.UID)
		}
	}
	return gone
}

func (t *Tracker) addVolume(source Source, pv string) {
	if !source.Known() {
		return
	}
	if t.Volumes[source] == nil {
		t.Volumes[source] = map[string]struct{}{}
	}
	t.Volumes[source][pv] = struct{}{}
}

func (t *Tracker) removeVolume(source Source, pv string) {
	delete(t.Volumes[source], pv)
	if len(t.Volumes[source]) == 0 {
		delete(t.Volumes, source)
	}
}

// volumeDeleted records that a PV's volume is deleted.
func (t *Tracker) volumeDeleted(uid types.UID, claim volume.ClaimRef) {
	t.Tombstones[uid] = Tombstone{VolumeDeleted: true, Claim: claim}
}
