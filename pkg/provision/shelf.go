package provision

import (
	"sync"

	v1 "k8s.io/api/core/v1"
)

// shelf holds the PVs that were stored a moment ago, until the watch cache shows them. It is safe
// for concurrent use.
type shelf struct {
	mu     sync.Mutex
	stored map[string]*v1.PersistentVolume
}

func newShelf() *shelf { return &shelf{stored: map[string]*v1.PersistentVolume{}} }

func (s *shelf) put(pv *v1.PersistentVolume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored[pv.Name] = pv
}

func (s *shelf) get(name string) *v1.PersistentVolume {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored[name]
}

func (s *shelf) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stored, name)
}
