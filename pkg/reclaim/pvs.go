package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"sync"
)

// PVs is what the watch cache of a Reclaimer shows, for another controller of the same driver in
// the same program, which then needs no watch of its own. It is up to date while the Reclaimer's
// Watch or Run is at work. Its methods are safe for concurrent use.
type PVs struct{ observer *observer }

// PVs returns what the watch cache shows.
func (r *Reclaimer) PVs() PVs { return PVs{r.observer} }

// Get returns the PV with this name. Only PVs that are the driver's, or name a volume of it, are
// found: others are not kept.
func (p PVs) Get(name string) (pv volume.PV, found bool) {
	known, found := p.observer.pvs.Get(name)
	if !found {
		return volume.PV{}, false
	}
	return *known, true
}

// Shared tells whether a PV of another name than except names the driver's volume with this handle.
func (p PVs) Shared(handle, except string) bool {
	return len(p.observer.handles.others(handle, except)) > 0
}

// Follow has changed called for every PV that Get shows from now on, with its first state, and for
// every one that it shows no more, with its last. It is called after Get shows it so, for one PV
// at a time, and must not block. What happened before is not told.
func (p PVs) Follow(changed func(volume.PV)) { p.observer.followers.add(changed) }

// Synced tells whether Get shows the PVs that there were when the watch began.
func (p PVs) Synced() bool { return p.observer.pvWatch.Synced() }

// followers are those who are told of PVs that come and go. The zero value has none. It is safe
// for concurrent use.
type followers struct {
	mu  sync.Mutex
	all []func(volume.PV)
}

func (f *followers) add(changed func(volume.PV)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, changed)
}

func (f *followers) tell(pv *volume.PV) {
	f.mu.Lock()
	all := f.all // only ever appended to
	f.mu.Unlock()
	for _, changed := range all {
		changed(*pv)
	}
}
