// Package memory is a backend store that forgets everything when the process ends.
package memory

// Store holds nothing beyond what its caller holds already: a backend loads once and keeps its records at hand.
type Store[T any] struct{}

// Load implements backend.Store.
func (Store[T]) Load() ([]T, error) { return nil, nil }

// Put implements backend.Store.
func (Store[T]) Put(T) error { return nil }

// Remove implements backend.Store.
func (Store[T]) Remove(string) error { return nil }
