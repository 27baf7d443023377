package statefulset

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
)

const (
	// rememberFor is the lifetime of the record of a deleted set, and rememberMax bounds the templates of such sets.
	rememberFor = 24 * time.Hour
	rememberMax = 1000
)

// deletedSets remembers deleted sets whose deletion was to delete their claims, if the watch has delivered the end of
// the set. It is safe for concurrent use.
type deletedSets struct {
	mu sync.Mutex
	// last are the sets, by the namespace and the base of the names of their claims (statefulset.Set.ClaimBase).
	last map[types.NamespacedName]deletedSet
	// orphan are existing sets that are being deleted without their dependents. If another finalizer keeps such a set for
	// longer, its last state lacks the finalizer orphan.
	orphan map[types.UID]bool
}

type deletedSet struct {
	statefulset.Set
	at time.Time
}

func newDeletedSets() *deletedSets {
	return &deletedSets{last: map[types.NamespacedName]deletedSet{}, orphan: map[types.UID]bool{}}
}

// lives records an existing set, to which all claims with the names that it gives belong.
func (d *deletedSets) lives(s *statefulset.Set) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(s)
	if s.Orphans {
		d.orphan[s.UID] = true
	}
}

// add records the end of a set. A set whose end was not seen is not remembered, because it may have been deleted
// without its dependents.
func (d *deletedSets) add(s statefulset.Set, final bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(&s)
	s.Orphans = s.Orphans || d.orphan[s.UID]
	delete(d.orphan, s.UID)
	if !final || !s.TakesClaims() {
		return
	}
	for _, template := range s.Templates {
		d.makeRoom(now)
		d.last[in(s.Namespace, s.ClaimBase(template))] = deletedSet{s, now}
	}
}

// forget drops the sets whose claims had the names that this one gives.
func (d *deletedSets) forget(s *statefulset.Set) {
	for _, template := range s.Templates {
		delete(d.last, in(s.Namespace, s.ClaimBase(template)))
	}
}

// makeRoom drops expired sets and, at the limit, the oldest one of the namespace that has the most.
func (d *deletedSets) makeRoom(now time.Time) {
	maps.DeleteFunc(d.last, func(_ types.NamespacedName, set deletedSet) bool { return now.Sub(set.at) >= rememberFor })
	if len(d.last) < rememberMax {
		return
	}
	of := map[string][]types.NamespacedName{}
	for key := range d.last {
		of[key.Namespace] = append(of[key.Namespace], key)
	}
	most := slices.MaxFunc(slices.Collect(maps.Values(of)), func(a, b []types.NamespacedName) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(b[0].Namespace, a[0].Namespace))
	})
	delete(d.last, slices.MinFunc(most, func(a, b types.NamespacedName) int {
		return cmp.Or(d.last[a].at.Compare(d.last[b].at), cmp.Compare(a.Name, b.Name))
	}))
}

// of returns the last deleted set that gave claims a base.
func (d *deletedSets) of(namespace, base string, now time.Time) (s statefulset.Set, found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set, found := d.last[in(namespace, base)]
	if !found || now.Sub(set.at) >= rememberFor {
		return s, false
	}
	return set.Set, true
}
