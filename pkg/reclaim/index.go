package reclaim

import "sync"

// handles tells which PVs name one volume handle. Nearly every handle has one PV, so that
// one is kept without a set of its own. It is safe for concurrent use.
type handles struct {
	mu    sync.Mutex
	first map[string]string
	more  map[string]map[string]struct{}
}

func newHandles() *handles {
	return &handles{first: map[string]string{}, more: map[string]map[string]struct{}{}}
}

func (h *handles) add(handle, pv string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first, taken := h.first[handle]
	switch {
	case !taken:
		h.first[handle] = pv
	case first != pv:
		if h.more[handle] == nil {
			h.more[handle] = map[string]struct{}{}
		}
		h.more[handle][pv] = struct{}{}
	}
}

func (h *handles) remove(handle, pv string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.more[handle], pv)
	if h.first[handle] == pv {
		delete(h.first, handle)
		for other := range h.more[handle] {
			h.first[handle] = other
			delete(h.more[handle], other)
			break
		}
	}
	if len(h.more[handle]) == 0 {
		delete(h.more, handle)
	}
}

// others returns the PVs of the handle except this one, nil for an empty handle.
func (h *handles) others(handle, pv string) []string {
	if handle == "" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	if first, ok := h.first[handle]; ok && first != pv {
		names = append(names, first)
	}
	for name := range h.more[handle] {
		if name != pv {
			names = append(names, name)
		}
	}
	return names
}

// attached counts the VolumeAttachments of each PV. It is safe for concurrent use.
type attached struct {
	mu    sync.Mutex
	count map[string]int
}

func newAttached() *attached { return &attached{count: map[string]int{}} }

func (a *attached) change(pv string, by int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count[pv] += by
	if a.count[pv] <= 0 {
		delete(a.count, pv)
	}
}

func (a *attached) of(pv string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[pv]
}
