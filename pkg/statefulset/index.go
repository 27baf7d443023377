package statefulset

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
)

// index finds related objects by their names. It is safe for concurrent use.
type index struct {
	mu sync.RWMutex
	// sets are the names of the sets with a base, and claims the ordinals of the claims, by the namespace and the base of
	// their names (statefulset.Set.ClaimBase).
	sets   map[types.NamespacedName][]string
	claims map[types.NamespacedName][]int
	// users are pods with a claim that is not named after them, since an index of all pods would be as large as the
	// caches.
	users map[types.NamespacedName][]string
}

func newIndex() *index {
	return &index{sets: map[types.NamespacedName][]string{}, claims: map[types.NamespacedName][]int{},
		users: map[types.NamespacedName][]string{}}
}

// put adds a value to the list of a key only once, because a set may have two templates of one name.
func put[V comparable](to map[types.NamespacedName][]V, key types.NamespacedName, v V) {
	if !slices.Contains(to[key], v) {
		to[key] = append(to[key], v)
	}
}

func drop[V comparable](from map[types.NamespacedName][]V, key types.NamespacedName, v V) {
	left := slices.DeleteFunc(from[key], func(other V) bool { return other == v })
	if len(left) == 0 {
		delete(from, key)
		return
	}
	from[key] = left
}

func in(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// set replaces the entries of a set, with nil for a set without entries.
func (x *index) set(before, now *statefulset.Set) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if before != nil {
		for _, template := range before.Templates {
			drop(x.sets, in(before.Namespace, before.ClaimBase(template)), before.Name)
		}
	}
	if now != nil {
		for _, template := range now.Templates {
			put(x.sets, in(now.Namespace, now.ClaimBase(template)), now.Name)
		}
	}
}

// claim adds a claim, or removes it.
func (x *index) claim(c *claim, exists bool) {
	base, ordinal, ok := statefulset.SplitClaimName(c.name)
	if !ok {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if exists {
		put(x.claims, in(c.namespace, base), ordinal)
	} else {
		drop(x.claims, in(c.namespace, base), ordinal)
	}
}

// named reports whether a claim is named after a pod, as "data-db-0" after "db-0".
func named(claim, pod string) bool { return strings.HasSuffix(claim, "-"+pod) }

// pod replaces the entries of a pod, with nil for a pod without entries.
func (x *index) pod(before, now *statefulset.Pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	each := func(p *statefulset.Pod, change func(map[types.NamespacedName][]string, types.NamespacedName, string)) {
		if p == nil {
			return
		}
		for _, claim := range p.Claims {
			if !named(claim, p.Name) {
				change(x.users, in(p.Namespace, claim), p.Name)
			}
		}
	}
	each(before, drop[string])
	each(now, put[string])
}

// setsOf returns the names of the sets with a base.
func (x *index) setsOf(namespace, base string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clone(x.sets[in(namespace, base)])
}

// claimsOf returns the names of all existing claims that match a template of the set.
func (x *index) claimsOf(s *statefulset.Set) (names []string) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, template := range s.Templates {
		for _, ordinal := range x.claims[in(s.Namespace, s.ClaimBase(template))] {
			names = append(names, s.ClaimName(template, ordinal))
		}
	}
	return names
}

// userOf returns a pod with a claim that is not named after it, empty for none.
func (x *index) userOf(namespace, claim string) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if users := x.users[in(namespace, claim)]; len(users) > 0 {
		return users[0]
	}
	return ""
}
