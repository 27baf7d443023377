package pvc

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// firstGap and maxGap bound the time between two lists of one namespace. The gap doubles while claims keep coming:
// 10,000 claims that are deleted within a minute take 20 lists.
const (
	firstGap = 100 * time.Millisecond
	maxGap   = 5 * time.Second
)

// batches, which is safe for concurrent use, gathers the claims of a namespace whose users are to be read, so that one
// list answers for all claims that asked before it was sent. The first list of a namespace is made at once, and the
// next one only after a gap.
type batches struct {
	mu sync.Mutex
	// waiting holds the asking claims by namespace, and pace limits the lists of each namespace.
	waiting map[string]map[types.UID]ask
	pace    map[string]pace
	// answers holds the claims that asked, until they are forgotten. The zero value means that no answer has arrived.
	answers map[types.UID]answer
}

// ask is a claim whose users are to be read.
type ask struct {
	uid types.UID
	key string
}

// answer is the result of one list.
type answer struct {
	// at is the time of arrival.
	at   time.Time
	pods *users
	err  error
}

// pace limits the lists of a namespace.
type pace struct {
	not time.Time // the next list is not made before this time
	gap time.Duration
}

// next returns the pace after a list at now. It starts again with firstGap if no claim asked for as long as the last
// gap.
func (p pace) next(now time.Time) pace {
	gap := firstGap
	if !p.idle(now) {
		gap = min(2*p.gap, maxGap)
	}
	return pace{now.Add(gap), gap}
}

func (p pace) idle(now time.Time) bool { return now.Sub(p.not) > p.gap }

func newBatches() *batches {
	return &batches{waiting: map[string]map[types.UID]ask{}, pace: map[string]pace{}, answers: map[types.UID]answer{}}
}

// join has a claim wait for the next list of its namespace. first means that no other claim waits for that list, so the
// caller must enqueue it.
func (b *batches) join(namespace string, a ask) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers[a.uid] = answer{}
	if first = len(b.waiting[namespace]) == 0; first {
		b.waiting[namespace] = map[types.UID]ask{}
	}
	b.waiting[namespace][a.uid] = a
	return first
}

// take returns the claims for which a list is to be sent now; claims that join later wait for the next list. If wait is
// positive, it is too early, and no claim is returned.
func (b *batches) take(namespace string, now time.Time) (asked map[types.UID]ask, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked = b.waiting[namespace]
	if len(asked) == 0 {
		return nil, 0
	}
	if wait = b.pace[namespace].not.Sub(now); wait > 0 {
		return nil, wait
	}
	b.pace[namespace] = b.pace[namespace].next(now)
	delete(b.waiting, namespace)
	for other, p := range b.pace {
		if p.idle(now) {
			delete(b.pace, other)
		}
	}
	// A claim that its other finalizers keep does not ask again, and its answer holds all pods of the namespace.
	for uid, a := range b.answers {
		if !a.at.IsZero() && now.Sub(a.at) > goodFor {
			delete(b.answers, uid)
		}
	}
	return asked, 0
}

// settle stores the result of a list for the claims that asked for it and are not forgotten. The gap counts from here,
// so slow lists are made less often.
func (b *batches) settle(namespace string, asked map[types.UID]ask, a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p, known := b.pace[namespace]; known {
		b.pace[namespace] = pace{a.at.Add(p.gap), p.gap}
	}
	for uid := range asked {
		if _, known := b.answers[uid]; known {
			b.answers[uid] = a
		}
	}
}

// goodFor is the lifetime of an answer, which bounds the time between a list and the writes that follow from it; a
// claim without a write by then asks again.
const goodFor = 30 * time.Second

// reading returns the answer for a claim, and discards stale answers. It also discards the answer of a failed list,
// which it returns once.
func (b *batches) reading(c Claim, now time.Time) Reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, found := b.answers[c.UID]
	switch {
	case a.err != nil:
		delete(b.answers, c.UID)
		return Reading{Made: true, Err: a.err}
	case !found || a.pods == nil:
		return Reading{}
	case now.Sub(a.at) > goodFor:
		delete(b.answers, c.UID)
		return Reading{}
	}
	return Reading{Made: true, Usage: a.pods.usage(c)}
}

// forget drops the answer for a claim.
func (b *batches) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.answers, uid)
}
