package singlenode

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// lateFor bounds how long a request may still take effect after this process gave up waiting for its answer. The API
// server ends requests after a minute (--request-timeout).
const lateFor = time.Minute

// ungating are the pods that may lose their gate without a lock, because a live read that no lock is needed has begun
// or succeeded. For another pod that takes a lock at that time, they count as users of the claim. Otherwise the list of
// users could come before the removal of the gate, and both pods would run. It is safe for concurrent use.
type ungating struct {
	mu sync.Mutex
	// pods has, by UID, the number of sessions at work and the time until which an unanswered request may take effect.
	pods map[types.UID]mayLand
}

type mayLand struct {
	sessions int
	until    time.Time
}

func newUngating() *ungating { return &ungating{pods: map[types.UID]mayLand{}} }

// begin records a session about a pod that reads whether a lock is needed. It has to come before that read.
func (u *ungating) begin(pod types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.pods[pod]
	p.sessions++
	u.pods[pod] = p
}

// end records that the session has ended. unanswered reports that the outcome of one of its requests is unknown.
func (u *ungating) end(pod types.UID, unanswered bool, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.pods[pod]
	p.sessions--
	if unanswered {
		p.until = now.Add(lateFor)
	}
	u.pods[pod] = p
	u.prune(now)
}

// may reports whether a pod may lose its gate.
func (u *ungating) may(pod types.UID, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.prune(now)
	_, may := u.pods[pod]
	return may
}

func (u *ungating) prune(now time.Time) {
	for pod, p := range u.pods {
		if p.sessions == 0 && !p.until.After(now) {
			delete(u.pods, pod)
		}
	}
}
