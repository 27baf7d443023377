package controller

import (
	"sync"
	"time"
)

// SlowTry is the longest time for which a normal try keeps a worker. Keys that took longer get a lane of their own.
// Otherwise the volumes of a hanging storage system would occupy all workers, and all other keys would wait for them.
const SlowTry = time.Second

// Lane limits the number of slow keys that are worked on concurrently. Others wait, and the ones with the fewest
// failures go first. A Lane is safe for concurrent use by all workers.
type Lane[K comparable] struct {
	limit int

	mu     sync.Mutex
	inside int
	// waiting has the waiting keys with their numbers of failures.
	waiting map[K]int
}

// NewLane returns the lane for slow keys, which get half of the workers.
func NewLane[K comparable](workers int) *Lane[K] {
	return &Lane[K]{limit: max(1, workers/2), waiting: map[K]int{}}
}

// Enter reports whether a key may be worked on now, so that the caller has to call Leave, or else makes the key wait.
func (l *Lane[K]) Enter(key K, failures int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside == l.limit {
		l.waiting[key] = failures
		return false
	}
	delete(l.waiting, key)
	l.inside++
	return true
}

// Leave ends the work on a key that has entered.
func (l *Lane[K]) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside--
}

// Next removes and returns the waiting key with the fewest failures, if the lane has room.
func (l *Lane[K]) Next() (key K, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside == l.limit {
		return key, false
	}
	least := 0
	for waiting, failures := range l.waiting {
		if !found || failures < least {
			key, least, found = waiting, failures, true
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
