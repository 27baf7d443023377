package fencing

import (
	"sync"
	"time"
)

// view holds this process's observations of node Leases, by its own clock, and is safe for concurrent use.
//
// The Leases are listed every leasePoll instead of watched, because a watch delivers a renewal of each node every 10 s,
// even while all nodes are reachable.
type view struct {
	// silentAfter is the longest time that a running node takes to renew its Lease.
	silentAfter time.Duration

	mu sync.Mutex
	// leases maps nodes to the resourceVersions of the last list.
	leases map[string]string
	// began is the time of the first list, and renewed the time of the last list that showed a renewal of some node.
	began, renewed time.Time
	// silent maps each unreachable node to the time of the first list that found its Lease no longer renewed.
	silent map[string]time.Time
}

func newView(silentAfter time.Duration) *view {
	return &view{silentAfter: silentAfter, silent: map[string]time.Time{}}
}

// saw records a list of Leases, and the names of the nodes that are unreachable according to the watch.
func (v *view) saw(leases map[string]string, unreachable []string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.began.IsZero() {
		v.began = now
	}
	before := v.leases
	for name, version := range leases {
		if old, known := before[name]; known && old != version {
			v.renewed = now
			delete(v.silent, name)
		}
	}
	for _, name := range unreachable {
		if v.silent[name].IsZero() {
			v.silent[name] = now
		}
	}
	v.leases = leases
}

// rest resets the view, because no list is made while all nodes are reachable.
func (v *view) rest() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leases, v.began, v.renewed = nil, time.Time{}, time.Time{}
	clear(v.silent)
}

// reached resets the silence of a node that is reachable or has renewed its Lease.
func (v *view) reached(node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.silent, node)
}

// since returns the start of a node's silence, or the zero time if unknown, and the resourceVersion of its Lease, or
// "".
func (v *view) since(node string) (at time.Time, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.silent[node], v.leases[node]
}

// clear reports whether some node has renewed its Lease within silentAfter. known is false until running nodes have had
// that time since the first list.
func (v *view) clear(now time.Time) (is, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	within := func(since time.Time) bool { return !since.IsZero() && now.Sub(since) <= v.silentAfter }
	is = within(v.renewed)
	return is, is || !v.began.IsZero() && !within(v.began)
}
