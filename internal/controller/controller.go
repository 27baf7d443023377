package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Cache is a watch cache; kube.Cache is one.
type Cache interface {
	// Run keeps it up to date until ctx ends.
	Run(ctx context.Context)
	// Sync is done once it holds what the API server had when Run began.
	Sync() cache.DoneChecker
}

// runner is a Queue of any key.
type runner interface {
	Run(ctx context.Context)
	Stop()
}

// Controller runs watch caches, and queues that work from them. Its methods are safe for concurrent
// use. Run is called once, by the one replica that leads; queues are added with NewQueue before.
type Controller struct {
	name   string
	caches []Cache
	queues []runner

	watching, working atomic.Bool
	stopped           chan struct{}
	stop              sync.Once
}

// NewController returns a Controller that is not running; name is for errors.
func NewController(name string, caches ...Cache) *Controller {
	return &Controller{name: name, caches: caches, stopped: make(chan struct{})}
}

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A replica that
// waits for leadership calls it, so that it can act at once when it leads. It changes nothing in the
// cluster.
func (c *Controller) Watch(ctx context.Context) {
	if !c.watching.CompareAndSwap(false, true) {
		// Another caller watches already, and for longer than this one may.
		<-ctx.Done()
		return
	}
	defer c.watching.Store(false)
	var all sync.WaitGroup
	for _, one := range c.caches {
		all.Go(func() { one.Run(ctx) })
	}
	all.Wait()
}

// Run works until ctx ends, which cuts off calls in flight, or until Stop, which lets them end; it
// returns when all that it started has ended. An error means that ctx ended before the caches were
// filled; nothing is decided from less.
//
// Run watches by itself unless Watch already does; then it needs Watch to continue.
//
// Each of also runs beside the queues once the caches are filled. Its context ends when the queues
// have. The first keys are added there: what Enqueue left out before.
func (c *Controller) Run(ctx context.Context, also ...func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer c.Stop() // a queue that never runs has a goroutine too
	all.Go(func() { c.Watch(ctx) })
	if err := c.waitSynced(ctx); err != nil {
		return err
	}
	c.working.Store(true)
	defer c.working.Store(false)
	for _, one := range also {
		all.Go(func() { one(ctx) })
	}
	var queues sync.WaitGroup
	for _, queue := range c.queues {
		queues.Go(func() { queue.Run(ctx) })
	}
	queues.Wait()
	return nil
}

// waitSynced is WaitSynced that Stop ends as well, without an error.
func (c *Controller) waitSynced(ctx context.Context) error {
	waiting, end := context.WithCancel(ctx)
	defer end()
	done := make(chan struct{})
	defer func() { end(); <-done }()
	go func() {
		defer close(done)
		select {
		case <-c.stopped:
			end()
		case <-waiting.Done():
		}
	}()
	if err := c.WaitSynced(waiting); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// Stop lets the work under way end and begins no more; Run then returns. It does not wait.
func (c *Controller) Stop() {
	c.stop.Do(func() { close(c.stopped) })
	for _, queue := range c.queues {
		queue.Stop()
	}
}

// Stopped is closed by Stop.
func (c *Controller) Stopped() <-chan struct{} { return c.stopped }

// Working reports whether Run has filled caches and has not returned.
func (c *Controller) Working() bool { return c.working.Load() }

// Synced reports whether the caches hold what the API server had when Watch began.
func (c *Controller) Synced() bool { return len(c.unsynced()) == 0 }

// WaitSynced waits until Synced. An error means that ctx ended before.
func (c *Controller) WaitSynced(ctx context.Context) error {
	checks := make([]cache.DoneChecker, len(c.caches))
	for i, one := range c.caches {
		checks[i] = one.Sync()
	}
	if !cache.WaitFor(ctx, "the first lists of "+c.name, checks...) {
		return fmt.Errorf("%s: wait for the first list of %s: %w", c.name, strings.Join(c.unsynced(), ", "),
			context.Cause(ctx))
	}
	return nil
}

func (c *Controller) unsynced() (names []string) {
	for _, one := range c.caches {
		if check := one.Sync(); !cache.IsDone(check) {
			names = append(names, check.Name())
		}
	}
	return names
}

// polled is a Cache that is filled elsewhere, and only reports whether it is.
type polled struct {
	name   string
	run    func(context.Context)
	synced func() bool
	done   chan struct{}
	once   sync.Once
}

// Polled returns a Cache of two functions: run keeps it up to date until its context ends, and synced,
// which is polled while run runs, reports whether it is filled.
func Polled(name string, run func(context.Context), synced func() bool) Cache {
	return &polled{name: name, run: run, synced: synced, done: make(chan struct{})}
}

// syncPoll is how often it is asked.
const syncPoll = 20 * time.Millisecond

func (p *polled) Run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asking.Go(func() {
		tick := time.NewTicker(syncPoll)
		defer tick.Stop()
		for !p.check() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	p.run(ctx)
}

func (p *polled) check() bool {
	if !p.synced() {
		return false
	}
	p.once.Do(func() { close(p.done) })
	return true
}

// Sync implements Cache. A cache that is filled already is done, no matter who runs it.
func (p *polled) Sync() cache.DoneChecker {
	p.check()
	return p
}

// Name and Done make it a cache.DoneChecker.
func (p *polled) Name() string          { return p.name }
func (p *polled) Done() <-chan struct{} { return p.done }
