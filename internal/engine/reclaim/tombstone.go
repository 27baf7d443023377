package reclaim

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Tombstone is the end of a PV whose volume may be left. The PV's Record is kept with it, so that a late answer still
// finds it.
type Tombstone struct {
	PV  volume.PV
	End End
}

// bury records that a PV is gone, and keeps tracking it until [Tracker.Forget] if its volume may be left (left) and is
// not known to be deleted.
func (t *Tracker) bury(pv *volume.PV, end End, left bool) (_ History, tracked bool) {
	r, known := t.Records[pv.UID]
	if !known {
		r = &Record{}
	}
	if !left || r.read().Done.VolumeDeleted {
		t.Forget(pv)
		return r.History, false
	}
	if r.read().Tombstone == nil {
		t.Tombstones[pv.Name] = append(t.Tombstones[pv.Name], pv.UID)
	}
	r.edit().Tombstone = &Tombstone{*pv, end}
	t.Records[pv.UID] = r
	return r.History, true
}

// Forget drops the record of a PV that is gone.
func (t *Tracker) Forget(pv *volume.PV) {
	delete(t.Records, pv.UID)
	left := slices.DeleteFunc(t.Tombstones[pv.Name], func(uid types.UID) bool { return uid == pv.UID })
	if len(left) == 0 {
		delete(t.Tombstones, pv.Name)
		return
	}
	t.Tombstones[pv.Name] = left
}

// ofEnd returns the record of a PV that is gone. known is false for a PV that exists or has no record.
func (t *Tracker) ofEnd(uid types.UID) (_ Memory, _ Tombstone, known bool) {
	r, known := t.Records[uid]
	if !known || r.read().Tombstone == nil {
		return Memory{Contested: t.Contested, DriverContested: t.Contested}, Tombstone{}, false
	}
	return t.memory(r.History, *r.Activity, r.Activity.Done), *r.Activity.Tombstone, true
}

// share records that another PV names the volume of this key now, and returns the names of the gone PVs that this
// concerns.
func (t *Tracker) share(handle string) (names []string) {
	for name, uids := range t.Tombstones {
		for _, uid := range uids {
			if tombstone := t.Records[uid].Activity.Tombstone; volume.HandleKey(tombstone.PV.Handle) == handle {
				tombstone.End.Shared = true
				names = append(names, name)
			}
		}
	}
	return names
}

// ForgetTombstones drops the records of all PVs that are gone, when another replica takes over.
func (t *Tracker) ForgetTombstones() {
	for _, uids := range t.Tombstones {
		for _, uid := range uids {
			delete(t.Records, uid)
		}
	}
	clear(t.Tombstones)
}
