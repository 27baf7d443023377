package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Cache is a watch cache, such as kube.Cache.
type Cache interface {
	// Run keeps it up to date until ctx ends.
	Run(ctx context.Context)
	// Sync returns a checker that is done once the cache holds the state that the API server had when Run began.
	Sync() cache.DoneChecker
}

// runner is a Queue with keys of any type.
type runner interface {
	Run(ctx context.Context)
	Stop()
}

// Controller runs watch caches, and queues that work from them. A feature's own Controller embeds it. Its methods are
// safe for concurrent use, once all queues are added with NewQueue, and all first steps with Begin.
type Controller struct {
	name   string
	caches []Cache
	queues []runner
	begin  []func(context.Context)

	watching, working, ran atomic.Bool
	stopped                chan struct{}
	stop                   sync.Once
}

// NewController returns a Controller that is not running; name is for errors.
func NewController(name string, caches ...Cache) *Controller {
	return &Controller{name: name, caches: caches, stopped: make(chan struct{})}
}

// Follow adds caches to c. It is called before Run, and is no method, for the same reason as Begin.
func Follow(c *Controller, caches ...Cache) { c.caches = append(c.caches, caches...) }

// Begin has c call the functions beside its queues once the caches are filled, with a context that ends after the
// queues. They add the first keys, which Enqueue has left out until then. It is called before Run, and is no method, so
// that only the feature that embeds c can call it.
func Begin(c *Controller, with ...func(context.Context)) { c.begin = append(c.begin, with...) }

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A replica that waits for
// leadership calls it, so that it can act as soon as it leads; it changes nothing in the cluster.
func (c *Controller) Watch(ctx context.Context) {
	if !c.watching.CompareAndSwap(false, true) {
		// Another caller already watches, for longer than this one may.
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

// Run works until ctx ends, which cancels calls in flight, or until Stop, which lets them finish, and returns when all
// its goroutines have ended. Only the leading replica calls it, and only once: with leader election, ctx must end with
// the lease. An error means that ctx ended before the caches were filled; nothing is decided on incomplete caches. A
// later call returns an error at once, since the queues do not work again.
//
// Run watches by itself unless Watch already does, and then relies on Watch to continue.
func (c *Controller) Run(ctx context.Context) error {
	if err := Once(&c.ran); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
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
	for _, one := range c.begin {
		all.Go(func() { one(ctx) })
	}
	var queues sync.WaitGroup
	for _, queue := range c.queues {
		queues.Go(func() { queue.Run(ctx) })
	}
	queues.Wait()
	return nil
}

var errRan = errors.New("run was called before, and works only once: make another controller, with another " +
	"registry of metrics")

// Once returns an error if ran is true already, and sets it. It is for a Run that begins before that of a Controller.
func Once(ran *atomic.Bool) error {
	if !ran.CompareAndSwap(false, true) {
		return errRan
	}
	return nil
}

// waitSynced is WaitSynced, except that Stop ends it too, without an error.
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

// Stop lets the work under way finish and starts no more, after which Run returns; Stop itself does not wait.
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

// Synced reports whether the caches hold the state that the API server had when Watch began.
func (c *Controller) Synced() bool { return len(c.unsynced()) == 0 }

// WaitSynced waits until Synced, and returns an error if ctx ends first.
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

// polled is a Cache that is filled elsewhere, and only reports when it is.
type polled struct {
	name   string
	run    func(context.Context)
	synced func() bool
	done   chan struct{}
	once   sync.Once
}

// Polled returns a Cache made of two functions: run keeps it up to date until its context ends, and synced, which is
// polled while run runs, reports whether it is filled.
func Polled(name string, run func(context.Context), synced func() bool) Cache {
	return &polled{name: name, run: run, synced: synced, done: make(chan struct{})}
}

// syncPoll is the polling interval for synced.
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

// Sync implements Cache; a cache that is already filled is done, regardless of its runner.
func (p *polled) Sync() cache.DoneChecker {
	p.check()
	return p
}

// Name and Done implement cache.DoneChecker.
func (p *polled) Name() string          { return p.name }
func (p *polled) Done() <-chan struct{} { return p.done }
