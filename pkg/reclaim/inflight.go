package reclaim

import (
	"errors"
	"sync"
)

// errBusy: the volume is being deleted for another PV of the same handle.
var errBusy = errors.New("the volume is being deleted already")

// inFlight are the handles for which a DeleteVolume is not answered yet: for one volume it
// is never called twice at once. It is safe for concurrent use.
type inFlight struct {
	mu      sync.Mutex
	handles map[string]struct{}
}

func newInFlight() *inFlight { return &inFlight{handles: map[string]struct{}{}} }

func (f *inFlight) take(handle string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, taken := f.handles[handle]; taken {
		return false
	}
	f.handles[handle] = struct{}{}
	return true
}

func (f *inFlight) giveBack(handle string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.handles, handle)
}
