package pvc

import (
	"slices"
	"sync"
)

// users knows the pods by the claims that they may use. It is safe for concurrent use.
type users struct {
	mu sync.RWMutex
	// of are the pods by a claim's key.
	of map[string][]*Pod
}

func newUsers() *users { return &users{of: map[string][]*Pod{}} }

// indexed returns a finished index of these pods.
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
	for _, claim := range p.names() {
		u.of[claim] = append(u.of[claim], p)
	}
}

// remove takes out the pod that this is a state of.
func (u *users) remove(p *Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, claim := range p.names() {
		left := slices.DeleteFunc(u.of[claim], func(other *Pod) bool { return other.UID == p.UID })
		if len(left) == 0 {
			delete(u.of, claim)
		} else {
			u.of[claim] = left
		}
	}
}

// usage returns who uses the claim.
func (u *users) usage(c Claim) Usage {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return usageOf(c, u.of[c.Key()])
}
