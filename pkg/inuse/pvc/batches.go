package pvc

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// firstGap and maxGap bound the time between two lists of one namespace. While claims keep coming it
// doubles: 10,000 claims that are deleted within a minute take 20 lists.
const (
	firstGap = 100 * time.Millisecond
	maxGap   = 5 * time.Second
)

// batches gather the claims of a namespace that want to know who uses them, so that one list answers
// for all that asked before it was sent. The first of a namespace waits for nobody; the next list is
// not made before a gap has passed. It is safe for concurrent use.
type batches struct {
	mu sync.Mutex
	// waiting are the claims that ask, by namespace, and pace when the next list may be made.
	waiting map[string]map[types.UID]ask
	pace    map[string]pace
	// answers has those that asked, until they are forgotten; the zero value is no answer yet.
	answers map[types.UID]answer
}

// ask is a claim that wants to know who uses it.
type ask struct {
	uid types.UID
	key string
}

// answer is what one list showed.
type answer struct {
	// at is when it came.
	at   time.Time
	pods *users
	err  error
}

// pace is when the next list of a namespace may be made.
type pace struct {
	not time.Time // before
	gap time.Duration
}

// next returns the pace after a list at a time. It starts anew once nobody asked for as long as the
// last gap.
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

// join has a claim wait for the next list of its namespace. first: no other waits for it, so
// that nobody has it made yet.
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

// take returns the claims for which a list is to be sent now; those that join from now on wait for
// another. With a wait it is too early, and nothing is taken.
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
	return asked, 0
}

// settle keeps what a list showed for those that asked for it and are not forgotten. The gap counts
// from here: where lists are slow, there are fewer.
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

// goodFor is how long an answer counts. It bounds the time between a list and the writes that follow
// from it; what is not written until then is asked for again.
const goodFor = 30 * time.Second

// reading returns what is known of a claim by a list, and forgets what has no worth any more: a list
// that is too old, or failed and was reported.
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

// forget ends what is known of a claim.
func (b *batches) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.answers, uid)
}
