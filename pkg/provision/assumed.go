package provision

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// assumed holds the PVs that were stored a moment ago, until the watch has told of them. It is safe
// for concurrent use.
type assumed struct {
	mu     sync.Mutex
	stored map[string]*v1.PersistentVolume
	// expected are the PVs, by name, whose CREATE is under way.
	expected map[string]expected
}

// expected is whose a PV is going to be, and whether the watch was faster than the answer.
type expected struct {
	claim types.UID
	told  bool
}

func newAssumed() *assumed {
	return &assumed{stored: map[string]*v1.PersistentVolume{}, expected: map[string]expected{}}
}

// expect is called before a PV is stored for a claim, and answered by put or forget.
func (s *assumed) expect(name string, claim types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expected[name].claim != claim {
		s.expected[name] = expected{claim: claim}
	}
}

// put takes a PV that was expected. One of which the watch has told already, it may have told the
// end of as well.
func (s *assumed) put(pv *v1.PersistentVolume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.expected[pv.Name].told {
		s.stored[pv.Name] = pv
	}
	delete(s.expected, pv.Name)
}

// forget is for a PV that was not stored, or of which that is not known.
func (s *assumed) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.expected, name)
}

func (s *assumed) get(name string) *v1.PersistentVolume {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored[name]
}

// drop is for a PV of which the watch tells. One of another claim that had the name before says
// nothing of the one that is here.
func (s *assumed) drop(pv volume.PV) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.expected[pv.Name]; e.claim != "" && e.claim == pv.Claim.UID {
		e.told = true
		s.expected[pv.Name] = e
	}
	if there := s.stored[pv.Name]; there != nil && volume.Of(there).Claim.UID == pv.Claim.UID {
		delete(s.stored, pv.Name)
	}
}
