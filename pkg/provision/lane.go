package provision

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// slowTry is how long a try may keep a worker. Names that kept one for longer, or whose driver did not answer in time,
// are worked on in a lane of their own: otherwise the volumes of a storage system that hangs would keep all workers,
// and new claims would wait for them.
const slowTry = time.Second

// isSlow reports whether a try that failed kept a worker for long.
func isSlow(err error, took time.Duration) bool {
	return took >= slowTry || errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// lane bounds how many names are worked on at once. Others wait, and those that failed least go first. It is safe for
// concurrent use.
type lane struct {
	limit int

	mu     sync.Mutex
	inside int
	// waiting are the names that wait, with how often each failed.
	waiting map[string]int
}

// newLane returns the lane for slow names beside so many workers: half of them.
func newLane(workers int) *lane { return &lane{limit: max(1, workers/2), waiting: map[string]int{}} }

// enter reports whether a name may be worked on now; who may calls leave in the end. Otherwise the name waits.
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

// next returns a name that waits while there is room, the one that failed least. It does not wait any more.
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
