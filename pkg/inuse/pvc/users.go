package pvc

import (
	"slices"
	"sync"
)

// users indexes pods by the claims that they may use, and is safe for concurrent use.
type users struct {
	mu sync.RWMutex
	// of holds the pods by the key of a claim.
	of map[string][]*Pod
}

func newUsers() *users { return &users{of: map[string][]*Pod{}} }

// indexed returns an index of these pods.
func indexed(pods []Pod) *users {
	u := newUsers()
	for i := range pods {
		u.add(&pods[i])
	}
	return u
}

func (u *users) add(p *Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.insert(p)
}

// remove removes the pod with the UID of p.
func (u *users) remove(p *Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(p)
}

// replace replaces one state of a pod by the next in one step. Between two steps, a claim would seem unused.
func (u *users) replace(before, now *Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(before)
	u.insert(now)
}

func (u *users) insert(p *Pod) {
	for _, claim := range p.names() {
		u.of[claim] = append(u.of[claim], p)
	}
}

func (u *users) drop(p *Pod) {
	for _, claim := range p.names() {
		left := slices.DeleteFunc(u.of[claim], func(other *Pod) bool { return other.UID == p.UID })
		if len(left) == 0 {
			delete(u.of, claim)
		} else {
			u.of[claim] = left
		}
	}
}

// usage returns the use of the claim.
func (u *users) usage(c Claim) Usage {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return usageOf(c, u.of[c.Key()])
}
