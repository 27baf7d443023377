package controller

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// listed is a cache that the test fills.
type listed struct {
	filled, running chan struct{}
	runs            atomic.Int32
}

func (l *listed) Run(ctx context.Context) {
	l.runs.Add(1)
	l.running <- struct{}{}
	<-ctx.Done()
}
func (l *listed) Sync() cache.DoneChecker { return l }
func (l *listed) Name() string            { return "things" }
func (l *listed) Done() <-chan struct{}   { return l.filled }

// run runs a controller with one cache and one queue until the test ends.
type run struct {
	*Controller
	cache  *listed
	queue  *Queue[string]
	seen   chan string
	ended  chan error
	cancel func()
}

func begin(t *testing.T, also ...func(context.Context)) *run {
	t.Helper()
	r := &run{seen: make(chan string, 10), ended: make(chan error, 1),
		cache: &listed{filled: make(chan struct{}), running: make(chan struct{}, 10)}}
	r.Controller = NewController("test", r.cache)
	r.queue = NewQueue(r.Controller, Config{Name: "t", Workers: 1}, func(_ context.Context, key string) Result {
		r.seen <- key
		return Done()
	})
	Begin(r.Controller, append(also, func(ctx context.Context) { r.queue.AddAll(ctx, []string{"first"}) })...)
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- r.Run(ctx)
	}()
	t.Cleanup(func() { r.cancel(); <-done })
	return r
}

func TestNoWorkBeforeCachesAreFilled(t *testing.T) {
	r := begin(t)
	r.queue.Enqueue("early")
	receive(t, "the watch, which Run begins by itself", r.cache.running)
	if r.Synced() || r.Working() || len(r.seen) > 0 {
		t.Fatal("it works without its caches")
	}
	close(r.cache.filled)
	if key := receive(t, "the first pass", r.seen); key != "first" {
		t.Errorf("%q is worked on, want the first pass alone", key)
	}
	r.queue.Enqueue("late")
	if key := receive(t, "a key", r.seen); key != "late" {
		t.Errorf("%q is worked on", key)
	}
	if !r.Synced() || !r.Working() {
		t.Error("it does not know that it works")
	}
	r.Stop()
	if err := receive(t, "the end", r.ended); err != nil || r.Working() {
		t.Errorf("after Stop: %v, working %v", err, r.Working())
	}
}

func TestContextEndsBeforeCachesAreFilled(t *testing.T) {
	r := begin(t)
	r.cancel()
	if err := receive(t, "the end", r.ended); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "things") {
		t.Errorf("error %v", err)
	}
}

func TestStopEndsWaitForCaches(t *testing.T) {
	r := begin(t)
	r.Stop()
	if err := receive(t, "the end", r.ended); err != nil {
		t.Error(err)
	}
	receive(t, "Stopped", r.Stopped())
}

// A second Run neither works, nor ends the first.
func TestSecondRunFails(t *testing.T) {
	r := begin(t)
	close(r.cache.filled)
	receive(t, "the first pass", r.seen)
	if err := r.Run(t.Context()); !errors.Is(err, errRan) || !r.Working() {
		t.Errorf("beside the first: %v, working %t", err, r.Working())
	}
	r.Stop()
	if err := receive(t, "the end", r.ended); err != nil {
		t.Error(err)
	}
	if err := r.Run(t.Context()); !errors.Is(err, errRan) {
		t.Errorf("after the first: %v", err)
	}
}

func TestOnlyOneCallerWatches(t *testing.T) {
	r := begin(t)
	receive(t, "the watch of Run, which another caller does not repeat", r.cache.running)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Watch(ctx) }()
	close(r.cache.filled)
	receive(t, "the first pass", r.seen)
	cancel()
	receive(t, "the other caller", done)
	if n := r.cache.runs.Load(); n != 1 {
		t.Errorf("the cache was run %d times", n)
	}
}

func TestAdditionalFunctionsEndAfterQueues(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	r := begin(t, func(ctx context.Context) { close(began); <-ctx.Done(); close(ended) })
	close(r.cache.filled)
	receive(t, "the start", began)
	r.Stop()
	if err := receive(t, "the end of Run", r.ended); err != nil {
		t.Error(err)
	}
	receive(t, "the end of what ran beside", ended)
}

func TestPolledCache(t *testing.T) {
	var filled atomic.Bool
	p := Polled("nodes", func(ctx context.Context) { <-ctx.Done() }, filled.Load)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	if cache.IsDone(p.Sync()) || p.Sync().Name() != "nodes" {
		t.Error("it is filled before it is")
	}
	filled.Store(true)
	receive(t, "the first list", p.Sync().Done())
	cancel()
	receive(t, "the end", done)
}
