package reclaim

import "slices"

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
