package reclaim

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"k8s.io/apimachinery/pkg/types"
)

// ending is a PV that is gone, and whose volume may not be. What was remembered of the PV
// stays in place, so that an answer which comes later still finds it.
type ending struct {
	pv  volume.PV
	end End
}

// leave notes that a PV is gone. With left, its volume may be left, and it is remembered
// until it is forgotten by forget; unless the volume is known to be deleted.
func (n *notes) leave(pv *volume.PV, end End, left bool) (_ History, remembered bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known := n.known[pv.UID]
	if !known {
		m = &memory{}
	}
	if !left || m.past().done.VolumeDeleted {
		n.drop(pv)
		return m.history, false
	}
	if m.past().over == nil {
		n.ended[pv.Name] = append(n.ended[pv.Name], pv.UID)
	}
	m.present().over = &ending{*pv, end}
	n.known[pv.UID] = m
	return m.history, true
}

// forget ends what is remembered of a PV that is gone.
func (n *notes) forget(pv *volume.PV) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop(pv)
}

func (n *notes) drop(pv *volume.PV) {
	delete(n.known, pv.UID)
	left := slices.DeleteFunc(n.ended[pv.Name], func(uid types.UID) bool { return uid == pv.UID })
	if len(left) == 0 {
		delete(n.ended, pv.Name)
		return
	}
	n.ended[pv.Name] = left
}

// ofEnd returns what is remembered of a PV that is gone. known is false for one that is there,
// or was forgotten.
func (n *notes) ofEnd(uid types.UID) (_ note, _ ending, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known := n.known[uid]
	if !known || m.past().over == nil {
		return note{contested: n.contested, driver: n.contested}, ending{}, false
	}
	return n.noteOf(*m.acts, m.history, m.acts.done), *m.acts.over, true
}

// endsOf returns the PVs that had this name and are gone.
func (n *notes) endsOf(name string) []types.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.ended[name])
}

// endedNames returns the names under which a PV is gone.
func (n *notes) endedNames() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := make([]string, 0, len(n.ended))
	for name := range n.ended {
		names = append(names, name)
	}
	return names
}

// share notes that another PV names the volume now, and returns the PVs this concerns.
func (n *notes) share(handle string) (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, uids := range n.ended {
		for _, uid := range uids {
			if over := n.known[uid].acts.over; over.pv.Handle == handle {
				over.end.Shared = true
				names = append(names, name)
			}
		}
	}
	return names
}

// forgetEnds ends what is remembered of all PVs that are gone, when another replica takes
// over.
func (n *notes) forgetEnds() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, uids := range n.ended {
		for _, uid := range uids {
			delete(n.known, uid)
		}
	}
	clear(n.ended)
}
