package singlenode

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// lateFor is how long a request may be carried out after this process gave up waiting for its answer: the API server
// ends requests after a minute (--request-timeout).
const lateFor = time.Minute

// ungating are the pods that may lose their gate without a lock: a read has shown that nothing asks for one, or is
// under way. To a pod that takes a lock meanwhile, because something asks by now, they are users of the claim. Without
// this, the list of users could come before the end of the gate, and both pods would run. It is safe for concurrent
// use.
type ungating struct {
	mu sync.Mutex
	// pods are those pods, with how many sessions are at work on each, and until when an unanswered request may land.
	pods map[types.UID]mayLand
}

type mayLand struct {
	sessions int
	until    time.Time
}

func newUngating() *ungating { return &ungating{pods: map[types.UID]mayLand{}} }

// begin notes that a session about a pod reads whether anything asks. It has to come before that read.
func (u *ungating) begin(pod types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.pods[pod]
	p.sessions++
	u.pods[pod] = p
}

// end notes that the session has ended. unanswered: it has sent a request of which the outcome is not known.
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
