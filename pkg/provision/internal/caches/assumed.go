package caches

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Assumed is the assume cache: it has the PVs that were created a moment ago, until the watch shows them, or is past
// them: a PV that came and went between two watches is never shown. It is safe for concurrent use.
type Assumed struct {
	// reached reports whether the watch cache has seen everything up to a resourceVersion.
	reached func(version string) bool

	mu     sync.Mutex
	stored map[string]*v1.PersistentVolume
	// expected are the PVs, by name, whose CREATE is under way.
	expected map[string]expected
}

// expected is whose a PV is going to be, and whether the watch was faster than the answer.
type expected struct {
	claim types.UID
	shown bool
}

// NewAssumed returns an empty cache, beside a watch cache of which reached reports whether it has seen everything up to
// a resourceVersion. reached does not call the Assumed.
func NewAssumed(reached func(version string) bool) *Assumed {
	return &Assumed{reached: reached, stored: map[string]*v1.PersistentVolume{}, expected: map[string]expected{}}
}

// Expect is called before a PV is stored for a claim, and ended by Put or Forget.
func (s *Assumed) Expect(name string, claim types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expected[name].claim != claim {
		s.expected[name] = expected{claim: claim}
	}
}

// Put takes a PV that was expected. If the watch has delivered the PV already, or is past it, it may have delivered its
// deletion as well.
func (s *Assumed) Put(pv *v1.PersistentVolume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.expected[pv.Name].shown && !s.reached(pv.ResourceVersion) {
		s.stored[pv.Name] = pv
	}
	delete(s.expected, pv.Name)
}

// Forget is for a PV that was not stored, or of which that is not known.
func (s *Assumed) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.expected, name)
}

// Get returns an assumed PV, nil if there is none of that name, or the watch cache says whether it exists. It is called
// before the watch cache is looked at, which shows the PV by then.
func (s *Assumed) Get(name string) *v1.PersistentVolume {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pv := s.stored[name]; pv != nil && !s.reached(pv.ResourceVersion) {
		return pv
	}
	return nil
}

// Expire drops the PVs of which the watch cache says whether they exist, and returns them. A PV that was created after
// the list was read stays: its resourceVersion is a later one.
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

// Drop is for a PV that the watch delivers. One of another claim that had the name before says nothing about the one
// that is kept here.
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
