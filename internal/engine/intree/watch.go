package intree

import (
	"cmp"
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// PVs is the watch cache of the PVs of in-tree volumes.
type PVs interface {
	// Get returns the PV of a name.
	Get(name string) (pv *PV, found bool)
	// Reached reports whether the cache and the Tracker have seen all events up to a resourceVersion.
	Reached(version string) bool
}

// Wake is the result of a watch event.
type Wake struct {
	// PVs are the names to enqueue.
	PVs []string
	// OtherChanged is true if the result of Other has changed with this event, which affects every PV.
	OtherChanged bool
}

// Added handles the event that shows a PV for the first time.
func (t *Tracker) Added(now *PV, pvs PVs) Wake { return t.changed(nil, now, pvs) }

// Updated handles a change of a PV, or two successive PVs of the same name.
func (t *Tracker) Updated(before, now *PV, pvs PVs) Wake {
	if before.UID == now.UID {
		return t.changed(before, now, pvs)
	}
	ended, added := t.Deleted(before, false, pvs), t.changed(nil, now, pvs)
	return Wake{PVs: append(ended.PVs, added.PVs...), OtherChanged: ended.OtherChanged != added.OtherChanged}
}

func (t *Tracker) changed(before, now *PV, pvs PVs) Wake {
	if before != nil && before.Source != now.Source {
		t.removeVolume(before.Source, before.Name)
	}
	t.addVolume(now.Source, now.Name)
	if original, found := pvs.Get(now.Original); found && now.Writer == WriterOther && isTwinOf(*now, *original) {
		t.ForeignTwin[original.UID] = struct{}{}
	}
	return Wake{OtherChanged: t.setForeign(now.Name, now.Writer == WriterOther), PVs: t.withSiblings(now)}
}

// Deleted handles the deletion of a PV with its last known state. final is false if the deletion event itself was
// missed.
//
// Deleted also records that a volume is deleted: the policy of its twin was Delete, the PV controller had seen the
// claim gone and had not failed, and the twin is gone. If less was seen, because the watch was interrupted or the twin
// had failed before, another twin is created: plugins report success for a volume that is already deleted.
func (t *Tracker) Deleted(last *PV, final bool, pvs PVs) Wake {
	t.removeVolume(last.Source, last.Name)
	if original, found := pvs.Get(last.Original); found && final && isTwinOf(*last, *original) &&
		last.Policy == volume.PolicyDelete && last.Phase == volume.PhaseReleased {
		t.volumeDeleted(original.UID, last.Claim)
	}
	t.forget(last.UID)
	return Wake{OtherChanged: t.setForeign(last.Name, false), PVs: t.withSiblings(last)}
}

// withSiblings returns the names of the PVs of one volume: a PV, its twin, and the PVs that may wait for them.
func (t *Tracker) withSiblings(pv *PV) []string {
	names := []string{pv.Name}
	for name := range t.Volumes[pv.Source] {
		if name != pv.Name {
			names = append(names, name)
		}
	}
	return names
}

// Decided reports whether the PV's name may need a decision.
func (pv PV) Decided() bool { return pv.Provisioned() || pv.TwinOf != "" }

// get returns the latest known state of a PV: from the watch, or the result of our own write that the watch does not
// show yet.
func (t *Tracker) get(name string, pvs PVs) (PV, bool) {
	pv, found := t.expected(name, pvs)
	if !found {
		cached, known := pvs.Get(name)
		if !known {
			return PV{}, false
		}
		pv = *cached
	}
	_, accepted := t.DeletionAccepted[pv.UID]
	pv.Terminating = pv.Terminating || accepted
	return pv, true
}

// Observe returns the facts about the PV of a name, or about the twin of that name whose original does not exist,
// without a live read. found is false if the name needs no decision.
func (t *Tracker) Observe(name string, pvs PVs, now time.Time) (f Facts, found bool) {
	pv, _ := t.get(name, pvs)
	switch {
	case pv.Provisioned():
		return t.factsOf(pv, pvs, now), true
	case pv.TwinOf == "":
		return Facts{}, false
	}
	if original, _ := t.get(pv.Original, pvs); original.UID == pv.TwinOf {
		return Facts{}, false // decided on with its original
	}
	return Facts{Other: t.Other(), Twin: pv, TwinFound: true}, true
}

func (t *Tracker) factsOf(pv PV, pvs PVs, now time.Time) Facts {
	f := Facts{Other: t.otherFor(pv.UID), PV: pv, Siblings: t.siblings(pv, pvs)}
	f.Twin, f.TwinFound = t.get(volume.TwinName(pv.Name), pvs)
	f.Tombstone, f.Failure = t.Tombstones[pv.UID], t.Failures[pv.UID].Failure
	f.YieldedSince = t.yielded(pv, f.Other == OtherPresent && f.otherActs(now), now)
	return f
}

// siblings returns the other known PVs of the volume, sorted by name.
func (t *Tracker) siblings(pv PV, pvs PVs) []PV {
	var siblings []PV
	for name := range t.Volumes[pv.Source] {
		if other, _ := t.get(name, pvs); other.UID != pv.UID && other.Source == pv.Source &&
			!isTwinOf(other, pv) {
			siblings = append(siblings, other)
		}
	}
	slices.SortFunc(siblings, func(a, b PV) int { return cmp.Compare(a.Name, b.Name) })
	return siblings
}
