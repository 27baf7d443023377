package controller

import (
	"cmp"
	"sync"
	"time"
)

// SlowTry is the longest time for which a normal try keeps a worker. Keys that took longer get a lane of their own.
// Otherwise the volumes of a hanging storage system would occupy all workers, and all other keys would wait for them.
const SlowTry = time.Second

// Lane limits the number of slow keys that are worked on concurrently. Others wait. Their shares take turns, so a
// namespace with many slow keys delays only its own, and in a share the keys with the fewest failures go first. A Lane
// is safe for concurrent use by all workers.
type Lane[K comparable] struct {
	limit int
	share func(K) string

	mu      sync.Mutex
	inside  int
	waiting map[K]slowKey
	// turns has the number of the last turn of each share, as long as keys wait, and turn the number of the last one. A
	// share that begins to wait counts as one that had its turn just now, or new namespaces would always go first.
	turns map[string]int
	turn  int
}

// slowKey is a key that waits, with its number of failures.
type slowKey struct {
	share    string
	failures int
}

// NewLane returns the lane for slow keys, which get half of the workers. share returns the share of a key.
func NewLane[K comparable](workers int, share func(K) string) *Lane[K] {
	return &Lane[K]{limit: max(1, workers/2), share: share, waiting: map[K]slowKey{}, turns: map[string]int{}}
}

// Enter reports whether a key may be worked on now, so that the caller has to call Leave, or else makes the key wait.
func (l *Lane[K]) Enter(key K, failures int) bool {
	share := l.share(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside == l.limit {
		l.waiting[key] = slowKey{share, failures}
		if _, known := l.turns[share]; !known {
			l.turns[share] = l.turn
		}
		return false
	}
	delete(l.waiting, key)
	l.inside++
	l.turn++
	l.turns[share] = l.turn
	if len(l.waiting) == 0 {
		clear(l.turns)
	}
	return true
}

// Leave ends the work on a key that has entered.
func (l *Lane[K]) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside--
}

// Next removes and returns the next waiting key, if the lane has room.
func (l *Lane[K]) Next() (key K, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside == l.limit {
		return key, false
	}
	var first slowKey
	for waiting, k := range l.waiting {
		order := cmp.Or(cmp.Compare(l.turns[k.share], l.turns[first.share]), cmp.Compare(k.failures, first.failures))
		if !found || order < 0 {
			key, first, found = waiting, k, true
		}
	}
	delete(l.waiting, key)
	return key, found
}

// Waiting returns the number of keys that wait.
func (l *Lane[K]) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}
