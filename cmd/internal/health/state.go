package health

import (
	"errors"
	"strings"
	"sync"
)

// State is what the health endpoints tell, from the moment the port is open. It is safe
// for concurrent use.
type State struct {
	mu           sync.Mutex
	lease, begun Check
	// lacks is what keeps the program from its work, empty if nothing does.
	lacks []string
}

// NewState returns the state of a program that has not begun, which begun says.
func NewState(begun Check) *State { return &State{begun: begun} }

// Begin replaces what says whether the program has begun.
func (s *State) Begin(begun Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = begun
}

// Watch notes what tells whether the Lease is renewed in time.
func (s *State) Watch(lease Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
}

// Lack notes what keeps the program from its work, in place of what did before.
func (s *State) Lack(what ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacks = what
}

// Alive is an error when only a restart helps.
func (s *State) Alive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil
	}
	return s.lease()
}

// Ready is an error until the program has begun, and while something is lacking.
func (s *State) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lacks) > 0 {
		return errors.New(strings.Join(s.lacks, "\n"))
	}
	return s.begun()
}
