package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
)

// Reconciler works on one key and returns when the key is due again. A Queue never runs two at once for one key. ctx
// ends when the work must be cancelled.
type Reconciler[K comparable] func(ctx context.Context, key K) Result

// Config holds the settings of a Queue.
type Config struct {
	// Name is the queue's label in the workqueue metrics. A queue without a name has none.
	Name string
	// Workers is the number of keys worked on at once. Less than 1 means 1.
	Workers int
	// Clock is replaced in tests. Default the real clock.
	Clock clock.WithTicker
}

// Queue runs a Reconciler over keys, and its methods are safe for concurrent use. Run is called once, by the Controller
// if it has one.
type Queue[K comparable] struct {
	cfg       Config
	reconcile Reconciler[K]
	queue     workqueue.TypedDelayingInterface[K]
	// of is the controller that runs the queue, nil for none.
	of *Controller

	// lane is nil without LimitSlow.
	lane *Lane[K]

	mu    sync.Mutex
	tries map[K]try
	// bulk has the keys of AddAll that no worker has taken yet.
	bulk map[K]struct{}
}

// try counts how often in a row a key returned the same backoff, with Soon in between or not. slow means that the last
// of these tries kept a worker for long. soon counts the tries since then that returned Soon.
type try struct {
	backoff     Backoff
	count, soon int
	slow        bool
}

// failures orders the keys of a share that wait for the lane. A key that returned Soon goes first, because its turn has
// only begun.
func (t try) failures() int {
	if t.soon > 0 {
		return 0
	}
	return t.count
}

// NewQueue returns a queue that c runs, or that the caller runs if c is nil; it starts nothing.
func NewQueue[K comparable](c *Controller, cfg Config, reconcile Reconciler[K]) *Queue[K] {
	cfg.Workers = max(1, cfg.Workers)
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	q := &Queue[K]{
		cfg:       cfg,
		reconcile: reconcile,
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
			Name:  cfg.Name,
			Clock: cfg.Clock,
		}),
		of:    c,
		tries: map[K]try{},
		bulk:  map[K]struct{}{},
	}
	if c != nil {
		c.queues = append(c.queues, q)
	}
	return q
}

// LimitSlow leaves half of the workers to other keys while keys whose last try failed slowly are tried again. share
// returns the share of a key, see [Lane]. It is called before Run.
func (q *Queue[K]) LimitSlow(share func(K) string) { q.lane = NewLane(q.cfg.Workers, share) }

// Enqueue is Add while the Controller works, and otherwise does nothing, because keys would only pile up on a replica
// that waits for leadership. The first pass of Run makes up for the omitted keys.
func (q *Queue[K]) Enqueue(key K) {
	if q.of == nil || q.of.Working() {
		q.Add(key)
	}
}

// Add has the key worked on as soon as a worker is free. A key that already waits is not added again, and a key that is
// being worked on is worked on once more afterwards.
func (q *Queue[K]) Add(key K) { q.queue.Add(key) }

// backlog is the number of its keys that AddAll lets wait, and roomPoll the interval at which it checks for room.
const (
	backlog  = 1000
	roomPoll = 5 * time.Millisecond
)

// AddAll adds keys, possibly very many, no faster than they are worked on. So a key that Add adds in between does not
// wait behind all of them, and the queue stays small. It does not wait for keys of Add, whose number may never fall. It
// returns when all keys are added, or when ctx ends or the queue stops.
func (q *Queue[K]) AddAll(ctx context.Context, keys []K) {
	for _, key := range keys {
		for q.bulkLen() >= backlog {
			if !Pause(ctx, q.cfg.Clock, roomPoll) || q.queue.ShuttingDown() {
				return
			}
		}
		q.mu.Lock()
		q.bulk[key] = struct{}{}
		q.mu.Unlock()
		q.queue.Add(key)
	}
}

func (q *Queue[K]) bulkLen() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.bulk)
}

// Run works until ctx ends, which also ends the reconcilers' context, or until Stop, and returns when every worker has
// ended.
func (q *Queue[K]) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for range q.cfg.Workers {
		workers.Go(func() {
			for q.work(ctx) {
			}
		})
	}
	unhook := context.AfterFunc(ctx, q.Stop)
	workers.Wait()
	unhook()
	q.Stop()
}

// Stop lets the workers finish the work under way and take no more, after which Run returns; Stop itself does not wait.
func (q *Queue[K]) Stop() { q.queue.ShutDown() }

func (q *Queue[K]) work(ctx context.Context) bool {
	key, stopped := q.queue.Get()
	if stopped || q.queue.ShuttingDown() {
		// The keys that still wait belong to the next leader.
		return false
	}
	defer q.queue.Done(key)
	last := q.taken(key)
	if last.slow && !q.lane.Enter(key, last.failures()) {
		return true // nextSlow brings it back
	}
	start := q.cfg.Clock.Now()
	result := q.guarded(ctx, key)
	q.later(key, result, q.cfg.Clock.Since(start))
	if last.slow {
		q.lane.Leave()
	}
	q.nextSlow()
	return true
}

// taken returns the last try of a key that a worker has taken.
func (q *Queue[K]) taken(key K) try {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.bulk, key)
	return q.tries[key]
}

// nextSlow adds a slow key while the lane has room, because a key that was added before may not have used its room.
func (q *Queue[K]) nextSlow() {
	if q.lane == nil {
		return
	}
	if key, found := q.lane.Next(); found {
		q.queue.Add(key)
	}
}

// afterPanic is the Result for a key whose reconciler panicked.
func afterPanic() Result { return Result{Backoff{First: time.Minute, Max: time.Hour}} }

// guarded keeps a panic over one object from taking down the controller of all others, and the program that embeds it.
// The panic is logged with its stack, and the key is tried again later.
func (q *Queue[K]) guarded(ctx context.Context, key K) (result Result) {
	if panics.Contain(ctx, func() { result = q.reconcile(ctx, key) }, "queue", q.cfg.Name, "key", key) != nil {
		return afterPanic()
	}
	return result
}

func (q *Queue[K]) later(key K, result Result, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if result.Backoff.Max == 0 {
		delete(q.tries, key)
		return
	}
	t := q.tries[key]
	tries := &t.count
	if result == Soon() {
		// A wait in between ends no failure: the storage system may still hang.
		tries = &t.soon
	} else {
		if t.backoff != result.Backoff {
			t.count = 0
		}
		t.backoff, t.soon, t.slow = result.Backoff, 0, q.lane != nil && took >= SlowTry
	}
	q.queue.AddAfter(key, result.Backoff.delay(*tries, draw()))
	*tries++
	q.tries[key] = t
}
