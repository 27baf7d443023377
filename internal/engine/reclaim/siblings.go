package reclaim

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Handles indexes the PVs by the key of their volume handle. Nearly every handle has a single PV, so the first needs no
// Family.
type Handles struct {
	First map[string]string
	More  map[string]*Family
}

// Family holds the names of the PVs of one handle, sorted. Keepers are those of them that keep the volume, so that
// neither a decision nor an event has to look at all PVs of a volume that stays.
type Family struct{ PVs, Keepers []string }

func NewHandles() Handles {
	return Handles{First: map[string]string{}, More: map[string]*Family{}}
}

// Set records a PV under a handle, unless that is empty, and reports in freed that the PV has ceased to keep the
// volume. keeps reports whether a PV keeps it.
func (h *Handles) Set(handle, pv string, keeps func(pv string) bool) (freed bool) {
	first, taken := h.First[handle]
	f := h.More[handle]
	switch {
	case handle == "":
		return false
	case f == nil && (!taken || first == pv):
		h.First[handle] = pv
		return false
	case f == nil:
		f = &Family{}
		f.set(first, keeps(first))
		delete(h.First, handle)
		h.More[handle] = f
	}
	return f.set(pv, keeps(pv))
}

func (f *Family) set(pv string, keeps bool) (freed bool) {
	f.PVs = insertInto(f.PVs, pv)
	if keeps {
		f.Keepers = insertInto(f.Keepers, pv)
		return false
	}
	f.Keepers, freed = removeFrom(f.Keepers, pv)
	return freed
}

// Remove removes a PV from a handle, and reports whether another PV of the handle may have waited for it to go.
func (h *Handles) Remove(handle, pv string) (freed bool) {
	f := h.More[handle]
	if f == nil {
		if h.First[handle] == pv {
			delete(h.First, handle)
		}
		return false
	}
	f.PVs, _ = removeFrom(f.PVs, pv)
	f.Keepers, freed = removeFrom(f.Keepers, pv)
	if len(f.PVs) == 1 {
		h.First[handle] = f.PVs[0]
		delete(h.More, handle)
	}
	return freed
}

// Names returns the PVs of a handle, which the caller must not change.
func (h *Handles) Names(handle string) []string {
	if first, found := h.First[handle]; found {
		return []string{first}
	}
	return h.family(handle).PVs
}

// Keepers returns the PVs that keep the volume of a handle with several PVs. The caller must not change them.
func (h *Handles) Keepers(handle string) []string { return h.family(handle).Keepers }

func (h *Handles) family(handle string) Family {
	if f := h.More[handle]; f != nil {
		return *f
	}
	return Family{}
}

// Shared reports whether a PV with a name other than except has the handle.
func (h *Handles) Shared(handle, except string) bool {
	first, found := h.First[handle]
	return found && first != except || h.More[handle] != nil
}

// insertInto returns sorted names with one more.
func insertInto(names []string, name string) []string {
	i, found := slices.BinarySearch(names, name)
	if found {
		return names
	}
	return slices.Insert(names, i, name)
}

// removeFrom returns sorted names without one of them, if it is there.
func removeFrom(names []string, name string) (_ []string, found bool) {
	i, found := slices.BinarySearch(names, name)
	if !found {
		return names, false
	}
	return slices.Delete(names, i, i+1), true
}

// handle returns the key of the volume handle under which a PV counts as a sibling, empty for another driver's volume.
// PVs that name our volumes count even if the driver does not own them.
func (e *Engine) handle(pv *volume.PV) string {
	if pv.Driver != e.Rules.Driver {
		return ""
	}
	return volume.HandleKey(pv.Handle)
}

// Place records the handle that a PV in the cache has, and reports in freed that the PV has ceased to keep the volume.
func (e *Engine) Place(pv *volume.PV) (freed bool) {
	return e.Handles.Set(e.handle(pv), pv.Name, func(name string) bool {
		known, found := e.PVs.Get(name)
		return found && known.Keeps()
	})
}

// placeAgain records the handle of a PV that has changed, and returns the PVs of the volume that are due because of it.
func (e *Engine) placeAgain(before, pv *volume.PV) (due []string) {
	moved := e.handle(before) != e.handle(pv)
	if moved {
		due = e.displace(before)
	}
	freed := e.Place(pv)
	switch {
	case moved:
	case freed, before.TwinOf != "", pv.TwinOf != "":
		due = e.due(pv, all)
	case before.Claim != pv.Claim:
		due = e.due(pv, one)
	}
	return due
}

// displace removes a PV from its handle, and returns the PVs of the volume that are due because of it.
func (e *Engine) displace(last *volume.PV) (due []string) {
	switch freed := e.Handles.Remove(e.handle(last), last.Name); {
	case freed, last.TwinOf != "":
		return e.due(last, all)
	case e.Attached[last.Name] > 0:
		return e.detached(last)
	}
	return e.due(last, one)
}

// detached returns the other PVs of a PV's volume that are due because its last attachment may have ended.
func (e *Engine) detached(pv *volume.PV) []string {
	due := e.due(pv, all)
	if len(due) > 0 && slices.ContainsFunc(e.Handles.Names(e.handle(pv)), e.isAttached) {
		return nil
	}
	return due
}

func (e *Engine) isAttached(pv string) bool { return e.Attached[pv] > 0 }

// one and all limit the PVs that due returns. A PV whose claim alone keeps the volume makes the others wait by the
// clock. Once it is gone, one of them continues at once, and its end wakes the next.
const all, one = 0, 1

// due returns the other PVs of a PV's volume that are to be deleted with it, up to a limit. While a PV keeps the
// volume, due returns none, because that PV wakes them in the end. A twin keeps it from all PVs but its original.
func (e *Engine) due(than *volume.PV, limit int) (names []string) {
	handle := e.handle(than)
	if keepers := e.Handles.Keepers(handle); len(keepers) > 1 || len(keepers) == 1 && !e.isTwin(keepers[0]) {
		return nil
	}
	for _, name := range e.Handles.Names(handle) {
		if pv, found := e.PVs.Get(name); found && name != than.Name && e.Owns(pv) && e.Rules.due(*pv) {
			if names = append(names, name); len(names) == limit {
				break
			}
		}
	}
	return names
}

func (e *Engine) isTwin(name string) bool {
	pv, found := e.PVs.Get(name)
	return found && pv.TwinOf != ""
}

// someSiblings is the number of other PVs of a volume that a decision gets if one is enough.
const someSiblings = 3

// siblings returns other PVs of the volume from the cache, sorted by name, except one of this name and those with these
// UIDs: all of them, or only some that keep the volume, if any does.
func (e *Engine) siblings(pv volume.PV, except string, absent ...types.UID) []volume.PV {
	if kept := e.keepers(pv, except, absent); len(kept) > 0 {
		return kept
	}
	return e.allSiblings(pv, except, absent)
}

func (e *Engine) keepers(pv volume.PV, except string, absent []types.UID) []volume.PV {
	return e.cached(e.Handles.Keepers(e.handle(&pv)), someSiblings, func(other *volume.PV) bool {
		return other.Name != except && !slices.Contains(absent, other.UID) && keepsFrom(*other, pv)
	})
}

func (e *Engine) allSiblings(pv volume.PV, except string, absent []types.UID) []volume.PV {
	if !e.Handles.Shared(e.handle(&pv), except) {
		return nil
	}
	return e.cached(e.Handles.Names(e.handle(&pv)), all, func(other *volume.PV) bool {
		return other.Name != except && !slices.Contains(absent, other.UID)
	})
}

// cached returns the PVs of these names that are in the cache and wanted, up to a limit.
func (e *Engine) cached(names []string, limit int, wanted func(*volume.PV) bool) (pvs []volume.PV) {
	for _, name := range names {
		if pv, found := e.PVs.Get(name); found && wanted(pv) {
			if pvs = append(pvs, *pv); len(pvs) == limit {
				break
			}
		}
	}
	return pvs
}
