package singlenode

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// users shares the lists of the pods of namespaces. Each call gets a list of its namespace that begins after the call.
// A namespace has one list at a time, so a thousand concurrent calls cause a few lists instead of a thousand. It is
// safe for concurrent use.
type users struct {
	// list returns the pods of a namespace that have claims and no gate.
	list func(ctx context.Context, namespace string) ([]singlenode.Pod, error)
	now  func() time.Time

	mu sync.Mutex
	// namespaces has an entry for each namespace with a waiting call.
	namespaces map[string]*listing
}

// listing has the last list of one namespace.
type listing struct {
	// calls counts the calls, and waiting the ones that have not returned. The mutex of users guards both.
	calls, waiting int
	// turn has room for the one call that lists, or reads the fields below.
	turn chan struct{}
	// covered is the number of calls that came before the list began.
	covered int
	began   time.Time
	pods    []singlenode.Pod
	err     error
}

func newUsers(of func(ctx context.Context, namespace string) ([]singlenode.Pod, error), now func() time.Time) *users {
	return &users{list: of, now: now, namespaces: map[string]*listing{}}
}

// of returns the pods of a namespace that have claims and no gate, from a list that begins after the call, and the time
// at which it began. The caller must not change the pods. It returns early when ctx ends.
//
// Calls get the turn in their order, and most find that an earlier one has listed for them.
func (u *users) of(ctx context.Context, namespace string) ([]singlenode.Pod, time.Time, error) {
	n, call := u.enter(namespace)
	defer u.leave(namespace, n)
	select {
	case <-ctx.Done():
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
		if call > n.covered {
			u.make(ctx, namespace, n)
		}
	}
	if ctx.Err() != nil {
		return nil, time.Time{}, fmt.Errorf("list the pods of namespace %q: %w", namespace, context.Cause(ctx))
	}
	return n.pods, n.began, n.err
}

// enter returns the listing of a namespace, and the number of this call.
func (u *users) enter(namespace string) (n *listing, call int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n = u.namespaces[namespace]; n == nil {
		n = &listing{turn: make(chan struct{}, 1)}
		u.namespaces[namespace] = n
	}
	n.calls++
	n.waiting++
	return n, n.calls
}

func (u *users) leave(namespace string, n *listing) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n.waiting--; n.waiting == 0 {
		delete(u.namespaces, namespace)
	}
}

// make lists the pods for all calls so far. After a list that was cut off by the end of its context, or panicked, the
// next call lists again.
func (u *users) make(ctx context.Context, namespace string, n *listing) {
	u.mu.Lock()
	calls := n.calls
	u.mu.Unlock()
	began := u.now()
	pods, err := u.list(ctx, namespace)
	if ctx.Err() == nil {
		n.covered, n.began, n.pods, n.err = calls, began, pods, err
	}
}

// usersOf returns the pods that use some claims.
func (c *Controller) usersOf(ctx context.Context, ask singlenode.Ask) (reply answered, err error) {
	var pods []singlenode.Pod
	pods, reply.began, err = c.users.of(ctx, ask.Namespace)
	for _, p := range pods {
		if slices.ContainsFunc(p.Claims, func(name string) bool { return slices.Contains(ask.Claims, name) }) {
			reply.Users = append(reply.Users, c.observer.user(p))
		}
	}
	return reply, err
}

// listUsers lists the pods of a namespace that have claims and no gate, or may be about to lose it without a lock.
func (c *Controller) listUsers(ctx context.Context, namespace string) (pods []singlenode.Pod, err error) {
	end, err := c.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	c.metrics.lists.Inc()
	err = c.cluster.eachPod(ctx, namespace, func(o *v1.Pod) {
		p := objects.PodOf(o)
		if p.Gated = p.Gated && !c.ungating.may(p.UID, c.cfg.Clock.Now()); !p.Gated && len(p.Claims) > 0 {
			pods = append(pods, p)
		}
	})
	return pods, err
}

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
