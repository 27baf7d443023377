package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Next says when a key is to be seen again. The zero value is: when it is added again.
type Next struct {
	// Backoff, if its Max is not zero, sees the key again after a delay that grows as
	// long as the same back-off is asked for in a row.
	Backoff Backoff
}

// Handler works on one key. A Loop never runs two handlers for one key at once. ctx ends
// when the work must be cut off.
type Handler[K comparable] func(ctx context.Context, key K) Next

// Config holds the settings of a Loop.
type Config struct {
	// Name is the queue's label in the workqueue metrics. Required.
	Name string
	// Workers is how many handlers run at once. Required, at least 1.
	Workers int
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

// Validate returns an error that names the first setting that is wrong.
func (c Config) Validate() error {
	switch {
	case c.Name == "":
		return errors.New("a work loop needs a name")
	case c.Workers < 1:
		return errors.New("a work loop needs at least one worker")
	}
	return nil
}

// Loop runs a Handler over keys that are added to it. Its methods are safe for concurrent
// use; Run is called once.
type Loop[K comparable] struct {
	cfg    Config
	handle Handler[K]
	queue  workqueue.TypedDelayingInterface[K]

	mu    sync.Mutex
	tries map[K]try
}

// try counts how often in a row a key asked for the same back-off.
type try struct {
	backoff Backoff
	count   int
}

// New returns a loop that is not running; keys can be added to it already.
func New[K comparable](cfg Config, handle Handler[K]) (*Loop[K], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Loop[K]{
		cfg:    cfg,
		handle: handle,
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
			Name:  cfg.Name,
			Clock: cfg.Clock,
		}),
		tries: map[K]try{},
	}, nil
}

// Add has the key seen as soon as a worker is free. A key that waits already is not added
// again; one that is being worked on is seen once more afterwards.
func (l *Loop[K]) Add(key K) { l.queue.Add(key) }

// backlog is how many keys AddAll lets wait, and how often it looks whether there is room.
const (
	backlog  = 1000
	lookWhen = 5 * time.Millisecond
)

// AddAll adds keys, of which there may be very many, no faster than they are worked on: what
// is added meanwhile by Add does not wait behind all of them, and the queue stays small. It
// returns when all are added, or when ctx ends or the loop is stopped.
func (l *Loop[K]) AddAll(ctx context.Context, keys []K) {
	for _, key := range keys {
		for l.queue.Len() >= backlog {
			room := l.cfg.Clock.NewTimer(lookWhen)
			select {
			case <-ctx.Done():
				room.Stop()
				return
			case <-room.C():
			}
			if l.queue.ShuttingDown() {
				return
			}
		}
		l.queue.Add(key)
	}
}

// Run works until ctx ends, which also ends the handlers' context, or until Stop. It
// returns when every worker has.
func (l *Loop[K]) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for range l.cfg.Workers {
		workers.Go(func() {
			for l.work(ctx) {
			}
		})
	}
	unhook := context.AfterFunc(ctx, l.Stop)
	workers.Wait()
	unhook()
	l.Stop()
}

// Stop lets the workers end the work in hand and take no more; Run then returns. It does
// not wait.
func (l *Loop[K]) Stop() { l.queue.ShutDown() }

func (l *Loop[K]) work(ctx context.Context) bool {
	key, stopped := l.queue.Get()
	if stopped || l.queue.ShuttingDown() {
		// What still waits in the queue belongs to the next leader.
		return false
	}
	defer l.queue.Done(key)
	l.later(key, l.guarded(ctx, key))
	return true
}

// afterPanic is how a key whose handler panicked is tried again.
func afterPanic() Next { return Next{Backoff: Backoff{First: time.Minute, Max: time.Hour}} }

// guarded keeps a panic over one object from taking down the controller of all others, and
// the program it is embedded in: it is logged with its stack, and the key tried again later.
func (l *Loop[K]) guarded(ctx context.Context, key K) (next Next) {
	defer func() {
		if cause := recover(); cause != nil {
			klog.FromContext(ctx).Error(fmt.Errorf("panic: %v", cause), "Work on one key ended in a panic; please report it",
				"queue", l.cfg.Name, "key", key, "stack", string(debug.Stack()))
			next = afterPanic()
		}
	}()
	return l.handle(ctx, key)
}

func (l *Loop[K]) later(key K, next Next) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next.Backoff.Max == 0 {
		delete(l.tries, key)
		return
	}
	t := l.tries[key]
	if t.backoff != next.Backoff {
		t = try{backoff: next.Backoff}
	}
	l.queue.AddAfter(key, next.Backoff.delay(t.count, draw()))
	t.count++
	l.tries[key] = t
}
