package fencing

import (
	"sync"
	"time"
)

// view is what this process has seen of the Leases of nodes, by its own clock. It is safe for concurrent use.
//
// The Leases are listed every leasePoll and not watched: a watch delivers a renewal of each node every 10 s, whether a
// node is unreachable or not.
type view struct {
	// silentAfter is how long a node that runs takes at most to renew its Lease.
	silentAfter time.Duration

	mu sync.Mutex
	// leases are the resourceVersions of the last list, by node.
	leases map[string]string
	// began is when the lists began, and renewed when one first showed another renewal of some node.
	began, renewed time.Time
	// silent is since when a node is unreachable and has not renewed its Lease.
	silent map[string]time.Time
}

func newView(silentAfter time.Duration) *view {
	return &view{silentAfter: silentAfter, silent: map[string]time.Time{}}
}

// saw records a list of Leases. unreachable are the nodes that the watch shows as such.
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

// rest forgets all: no list is made while no node is unreachable.
func (v *view) rest() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leases, v.began, v.renewed = nil, time.Time{}, time.Time{}
	clear(v.silent)
}

// reached forgets since when a node is silent: it is not unreachable, or has renewed its Lease.
func (v *view) reached(node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.silent, node)
}

// since returns since when a node is unreachable and silent, the zero time if that is not known, and the
// resourceVersion of its Lease, empty for none.
func (v *view) since(node string) (at time.Time, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.silent[node], v.leases[node]
}

// clear reports whether a Lease of some node was renewed a short time ago. known is false while that cannot be said
// yet: nodes that run take some time for it.
func (v *view) clear(now time.Time) (is, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	within := func(since time.Time) bool { return !since.IsZero() && now.Sub(since) <= v.silentAfter }
	is = within(v.renewed)
	return is, is || !v.began.IsZero() && !within(v.began)
}
