package health

import (
	"errors"
	"strings"
	"sync"
)

// State is the state behind the health endpoints from the moment the port is open, and is safe for concurrent use.
type State struct {
	mu           sync.Mutex
	lease, begun Check
	// lacks explains why the program cannot work, and is empty otherwise.
	lacks []string
}

// NewState returns the state of a program, where begun returns an error until the program has started.
func NewState(begun Check) *State { return &State{begun: begun} }

// Begin replaces the check for the start of the program.
func (s *State) Begin(begun Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = begun
}

// Watch sets the check for the renewal of the Lease.
func (s *State) Watch(lease Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
}

// Lack replaces the reasons why the program cannot work; without arguments it can work.
func (s *State) Lack(what ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacks = what
}

// Alive returns an error if only a restart can help.
func (s *State) Alive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil
	}
	return s.lease()
}

// Ready returns an error until the program has started, and while a reason of Lack remains.
func (s *State) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lacks) > 0 {
		return errors.New(strings.Join(s.lacks, "\n"))
	}
	return s.begun()
}
