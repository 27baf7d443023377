package reclaim

// Handles indexes PVs by volume handle. Nearly every handle has a single PV, so the first needs no set of its own.
type Handles struct {
	First map[string]string
	More  map[string]map[string]struct{}
}

func NewHandles() Handles {
	return Handles{First: map[string]string{}, More: map[string]map[string]struct{}{}}
}

func (h *Handles) Add(handle, pv string) {
	first, taken := h.First[handle]
	switch {
	case !taken:
		h.First[handle] = pv
	case first != pv:
		if h.More[handle] == nil {
			h.More[handle] = map[string]struct{}{}
		}
		h.More[handle][pv] = struct{}{}
	}
}

func (h *Handles) Remove(handle, pv string) {
	delete(h.More[handle], pv)
	if h.First[handle] == pv {
		delete(h.First, handle)
		for other := range h.More[handle] {
			h.First[handle] = other
			delete(h.More[handle], other)
			break
		}
	}
	if len(h.More[handle]) == 0 {
		delete(h.More, handle)
	}
}

// Others returns the PVs of the handle except this one, nil for an empty handle.
func (h *Handles) Others(handle, pv string) []string {
	if handle == "" {
		return nil
	}
	var names []string
	if first, ok := h.First[handle]; ok && first != pv {
		names = append(names, first)
	}
	for name := range h.More[handle] {
		if name != pv {
			names = append(names, name)
		}
	}
	return names
}
