package inuse

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
)

// Kind is one kind of object that is protected. Its methods are safe for concurrent use.
type Kind interface {
	// Decide says what to do about the object of a key, by what the watches show; duty tells
	// whether it is on us. found is false when there is no such object.
	Decide(key string, duty func(Object) Duty) (o Object, d Decision, found bool)
	// Ask has who uses the object read. It does not block; the object is to be woken with the answer.
	Ask(o Object)
	// Patch carries out AddFinalizer or DropFinalizer and returns the object as it is then. Errors
	// are those of the package kube.
	Patch(ctx context.Context, o Object, a Action) (after Object, err error)
	// Keys returns the keys of all objects that may need something.
	Keys() []string
	// List reads all objects from the API server.
	List(ctx context.Context) ([]Held, error)
	// Caches are what Decide looks at.
	Caches() []Cache
}

// Cache is a watch.
type Cache interface {
	// Run keeps it up to date until ctx ends.
	Run(ctx context.Context)
	// Sync is done once it holds what the API server had when it was started.
	Sync() cache.DoneChecker
}

// Guard protects the objects of one kind.
type Guard struct {
	name    string
	cfg     Config
	kind    Kind
	notes   *notes
	reports *reports
	metrics *metrics
	loop    *controller.Loop[string]

	watching, awake atomic.Bool
}

// New returns a Guard for a kind with this name ("PersistentVolume"). Nothing is started: see Run.
func New(name string, kind Kind, cfg Config) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make a guard of each %s: %w", name, err)
	}
	cfg = cfg.WithDefaults()
	g := &Guard{name: name, cfg: cfg, kind: kind, notes: newNotes(cfg.Mode, cfg.Patience)}
	g.metrics = newMetrics(g)
	g.reports = newReports(name, cfg.Events, g.metrics.tell)
	err := g.metrics.register(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	if g.loop, err = controller.New(controller.Config{Name: "protect-" + name, Workers: cfg.Workers, Clock: cfg.Clock}, g.work); err != nil {
		return nil, err
	}
	return g, nil
}

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A replica
// that waits to lead calls it, so that it can act at once when it does. It changes nothing in the
// cluster.
func (g *Guard) Watch(ctx context.Context) {
	if g.cfg.Mode == ModeOff || !g.watching.CompareAndSwap(false, true) {
		// There is nothing to watch, or somebody else does already.
		<-ctx.Done()
		return
	}
	defer g.watching.Store(false)
	var watches sync.WaitGroup
	for _, c := range g.kind.Caches() {
		watches.Go(func() { c.Run(ctx) })
	}
	watches.Wait()
}

// Run protects until ctx ends, which cuts off calls in flight, or until Stop, which lets them
// end; it returns when everything it started has ended. It is called once, by the one replica that
// leads. It watches by itself unless Watch already does; then it needs Watch to go on.
func (g *Guard) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { g.Watch(ctx) })
	if g.cfg.Mode != ModeOff {
		g.notes.leads()
		if err := g.WaitSynced(ctx); err != nil {
			return err
		}
	}
	g.awake.Store(true)
	defer g.awake.Store(false)
	all.Go(func() { g.loop.AddAll(ctx, g.kind.Keys()) })
	klog.FromContext(ctx).Info("Protecting", "kind", g.name, "mode", g.cfg.Mode, "dryRun", g.cfg.DryRun)
	g.loop.Run(ctx)
	return nil
}

// Stop lets the writes in hand end and begins no more; Run then returns. It does not wait.
func (g *Guard) Stop() { g.loop.Stop() }

// WaitSynced waits until the caches hold what the API server had when they were started. An error
// means that ctx ended before.
func (g *Guard) WaitSynced(ctx context.Context) error {
	var checks []cache.DoneChecker
	for _, c := range g.kind.Caches() {
		checks = append(checks, c.Sync())
	}
	if g.cfg.Mode != ModeOff && !cache.WaitFor(ctx, "the first list from the API server", checks...) {
		return fmt.Errorf("wait for the first list of each %s: %w", g.name, context.Cause(ctx))
	}
	return nil
}

// Synced tells whether WaitSynced would return at once.
func (g *Guard) Synced() bool {
	if g.cfg.Mode == ModeOff {
		return true
	}
	for _, c := range g.kind.Caches() {
		if !cache.IsDone(c.Sync()) {
			return false
		}
	}
	return true
}

// Wake has the object of a key decided on. Before Run works nobody would; what is missed by that,
// Run makes up for by looking at every object.
func (g *Guard) Wake(key string) {
	if g.awake.Load() {
		g.loop.Add(key)
	}
}

// Appeared, Changed and Ended are told what the watch of the kind shows.
func (g *Guard) Appeared(now Object) { g.Wake(now.Key()) }

// Changed is told of a change.
func (g *Guard) Changed(before, now Object) {
	if before.UID != now.UID {
		g.Ended(before, false)
		g.Appeared(now)
		return
	}
	g.met(g.notes.changed(before, now, g.cfg.Clock.Now()))
	g.Wake(now.Key())
}

// Ended is told of an end, and whether it was itself seen.
func (g *Guard) Ended(last Object, final bool) {
	g.met(g.notes.gone(last, final, g.cfg.Clock.Now()))
	g.reports.Forget(last.UID)
}

func (g *Guard) met(news bool) {
	if news && g.awake.Load() {
		klog.Background().Info("Somebody else does this work; standing down", "kind", g.name)
	}
}

// Retry is how a failed call is tried again.
func (c Config) Retry() controller.Next {
	return controller.Next{Backoff: controller.Backoff{First: c.RetryStart, Max: c.RetryMax}}
}

// soon is for what ends by itself in a moment.
func soon() controller.Next {
	return controller.Next{Backoff: controller.Backoff{First: 200 * time.Millisecond, Max: 5 * time.Second}}
}

// After has a key seen again once a time has passed. What a loop takes off each delay by chance
// is put on before.
func After(wait time.Duration) controller.Next {
	wait = wait*5/4 + time.Millisecond
	return controller.Next{Backoff: controller.Backoff{First: wait, Max: wait}}
}
