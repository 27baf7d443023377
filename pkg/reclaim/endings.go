package reclaim

import (
	"slices"
	"sync"
)

// ending is a PV that is gone, and whose volume may not be.
type ending struct {
	pv            PV
	end           End
	history       History
	volumeDeleted bool
}

// endings are the PVs that are gone and not done with. It is safe for concurrent use.
type endings struct {
	mu   sync.Mutex
	byPV map[string][]ending
}

func newEndings() *endings { return &endings{byPV: map[string][]ending{}} }

func (e *endings) add(pv PV, end End, history History) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byPV[pv.Name] = append(e.byPV[pv.Name], ending{pv: pv, end: end, history: history})
}

// of returns the ends of the PVs that had this name.
func (e *endings) of(name string) []ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.byPV[name])
}

func (e *endings) names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := make([]string, 0, len(e.byPV))
	for name := range e.byPV {
		names = append(names, name)
	}
	return names
}

// share notes that another PV names the volume now, and returns the PVs this concerns.
func (e *endings) share(handle string) (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, ends := range e.byPV {
		for i := range ends {
			if ends[i].pv.Handle == handle {
				ends[i].end.Shared = true
				names = append(names, name)
			}
		}
	}
	return names
}

// done notes that the volume of a PV is deleted.
func (e *endings) done(pv PV) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.byPV[pv.Name] {
		if e.byPV[pv.Name][i].pv.UID == pv.UID {
			e.byPV[pv.Name][i].volumeDeleted = true
		}
	}
}

// forget ends what is known of a PV.
func (e *endings) forget(pv PV) {
	e.mu.Lock()
	defer e.mu.Unlock()
	left := slices.DeleteFunc(e.byPV[pv.Name], func(e ending) bool { return e.pv.UID == pv.UID })
	if len(left) == 0 {
		delete(e.byPV, pv.Name)
		return
	}
	e.byPV[pv.Name] = left
}

// clear ends what is known of all, when another replica takes over.
func (e *endings) clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.byPV)
}
