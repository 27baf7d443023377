package caches

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Assumed is the assume cache, which holds recently created or read PVs until the watch shows them or is past them,
// because a PV that existed only between two watches is never shown. Its methods are safe for concurrent use.
type Assumed struct {
	// reached reports whether the watch cache has seen everything up to a resourceVersion.
	reached func(version string) bool

	mu     sync.Mutex
	stored map[string]*v1.PersistentVolume
	// expected has the PVs, by name, whose CREATE or read is in progress.
	expected map[string]expected
}

// expected holds the claim of a PV, and whether the watch was faster than the answer.
type expected struct {
	claim types.UID
	shown bool
}

// NewAssumed returns an empty cache, where reached reports whether the watch cache beside it has seen everything up to
// a resourceVersion, and must not call the Assumed.
func NewAssumed(reached func(version string) bool) *Assumed {
	return &Assumed{reached: reached, stored: map[string]*v1.PersistentVolume{}, expected: map[string]expected{}}
}

// Expect announces the CREATE, or a read, of a PV for a claim, which Put or Forget ends.
func (s *Assumed) Expect(name string, claim types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expected[name].claim != claim {
		s.expected[name] = expected{claim: claim}
	}
}

// Put adds an expected PV, and returns false if the watch has delivered the PV already or is past it. In that case the
// PV is not added, because the watch may also have delivered its deletion.
func (s *Assumed) Put(pv *v1.PersistentVolume) (added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if added = !s.expected[pv.Name].shown && !s.reached(pv.ResourceVersion); added {
		s.stored[pv.Name] = pv
	}
	delete(s.expected, pv.Name)
	return added
}

// Forget drops the expectation of a PV that was not stored, or perhaps not stored.
func (s *Assumed) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.expected, name)
}

// Get returns an assumed PV, or nil if the name is unknown or the watch cache is authoritative. Callers use it before
// the watch cache, which then shows the PV.
func (s *Assumed) Get(name string) *v1.PersistentVolume {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pv := s.stored[name]; pv != nil && !s.reached(pv.ResourceVersion) {
		return pv
	}
	return nil
}

// Expire drops and returns the PVs for which the watch cache is authoritative. A PV that was created after the list was
// read stays, because its resourceVersion is later.
func (s *Assumed) Expire() (expired []*v1.PersistentVolume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, pv := range s.stored {
		if s.reached(pv.ResourceVersion) {
			expired = append(expired, pv)
			delete(s.stored, name)
		}
	}
	return expired
}

// Drop handles a PV from the watch. A PV of another claim that had the name before does not affect the assumed one.
func (s *Assumed) Drop(pv volume.PV) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.expected[pv.Name]; e.claim != "" && e.claim == pv.Claim.UID {
		e.shown = true
		s.expected[pv.Name] = e
	}
	if there := s.stored[pv.Name]; there != nil && volume.Of(there).Claim.UID == pv.Claim.UID {
		delete(s.stored, pv.Name)
	}
}
