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

// Move moves an object from one group to another, or replaces it in the same group, in one step: a reader finds it
// before and after. An object without a group ("") is not in the index.
func (x *Index[K, V]) Move(from, to string, key K, object V) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if delete(x.groups[from], key); len(x.groups[from]) == 0 {
		delete(x.groups, from)
	}
	if to == "" {
		return
	}
	if x.groups == nil {
		x.groups = map[string]map[K]V{}
	}
	if x.groups[to] == nil {
		x.groups[to] = map[K]V{}
	}
	x.groups[to][key] = object
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
