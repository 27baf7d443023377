package objects

import (
	"maps"
	"slices"
	"sync"
)

// Index finds objects by the value of an attribute, such as pods by their node, where a search of all objects would
// make each change as expensive as the cluster is large. The zero value is empty. Its methods are safe for concurrent
// use.
type Index[K comparable, V any] struct {
	mu     sync.RWMutex
	groups map[string]map[K]V
}

// Put adds an object to a group, or replaces it there. An object without a group ("") is not in the index.
func (x *Index[K, V]) Put(group string, key K, object V) {
	if group == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.groups == nil {
		x.groups = map[string]map[K]V{}
	}
	if x.groups[group] == nil {
		x.groups[group] = map[K]V{}
	}
	x.groups[group][key] = object
}

// Remove removes an object from a group, if it is there.
func (x *Index[K, V]) Remove(group string, key K) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if delete(x.groups[group], key); len(x.groups[group]) == 0 {
		delete(x.groups, group)
	}
}

// In returns the objects of a group, in random order.
func (x *Index[K, V]) In(group string) []V {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Collect(maps.Values(x.groups[group]))
}

// All returns the objects of all groups, in random order.
func (x *Index[K, V]) All() (all []V) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, group := range x.groups {
		all = slices.AppendSeq(all, maps.Values(group))
	}
	return all
}
