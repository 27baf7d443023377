package provision

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// slowTry is the longest time for which a normal try keeps a worker. Names that took longer, or whose driver did not
// answer in time, get a lane of their own. Otherwise the volumes of a hanging storage system would occupy all workers,
// and new claims would wait for them.
const slowTry = time.Second

// isSlow reports whether a failed try kept a worker for long.
func isSlow(err error, took time.Duration) bool {
	return took >= slowTry || errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// lane limits the number of names that are worked on concurrently. Others wait, and the ones with the fewest failures
// go first. A lane is safe for concurrent use by all workers.
type lane struct {
	limit int

	mu     sync.Mutex
	inside int
	// waiting has the waiting names with their numbers of failures.
	waiting map[string]int
}

// newLane returns the lane for slow names, which get half of the workers.
func newLane(workers int) *lane { return &lane{limit: max(1, workers/2), waiting: map[string]int{}} }

// enter reports whether a name may be worked on now, so that the caller has to call leave, or else makes the name wait.
func (l *lane) enter(name string, failures int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside == l.limit {
		l.waiting[name] = failures
		return false
	}
	delete(l.waiting, name)
	l.inside++
	return true
}

func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside--
}

// next removes and returns the waiting name with the fewest failures, if the lane has room.
func (l *lane) next() (name string, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside == l.limit {
		return "", false
	}
	least := 0
	for waiting, failures := range l.waiting {
		if !found || failures < least {
			name, least, found = waiting, failures, true
		}
	}
	delete(l.waiting, name)
	return name, found
}
