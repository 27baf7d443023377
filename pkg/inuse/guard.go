package inuse

import (
	"context"
	"fmt"

	"k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

// Kind is one kind of object that is protected. Its methods are safe for concurrent use.
type Kind interface {
	// Decide decides on the object of a key by what the watches show; duty returns whether it is on us
	// to act. found is false when there is no such object.
	Decide(key string, duty func(Object) Duty) (o Object, d Decision, found bool)
	// ReadUsers has who uses the object read. It does not block; the answer wakes the object.
	ReadUsers(o Object)
	// Patch carries out AddFinalizer or RemoveFinalizer and returns the object as it is then. Errors
	// are those of package kube.
	Patch(ctx context.Context, o Object, a Action) (after Object, err error)
	// Keys returns the keys of all objects that may need something.
	Keys() []string
	// List reads all objects from the API server.
	List(ctx context.Context) ([]Held, error)
	// Caches are what Decide reads.
	Caches() []controller.Cache
}

// Guard protects the objects of one kind.
type Guard struct {
	name     string
	cfg      Config
	kind     Kind
	tracker  *tracker
	recorder *events.Recorder[Reason]
	metrics  *metrics
	control  *controller.Controller
	queue    *controller.Queue[string]
}

// New returns a Guard for a kind with this name ("PersistentVolume"). Nothing is started: see Run.
func New(name string, kind Kind, cfg Config) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a controller for each %s: %w", name, err)
	}
	cfg = cfg.WithDefaults()
	g := &Guard{name: name, cfg: cfg, kind: kind, tracker: newTracker(cfg.Mode, cfg.Patience)}
	g.metrics = newMetrics(g)
	g.recorder = events.NewRecorder(events.Config[Reason]{Events: cfg.Events, Counter: g.metrics.reports})
	if err := g.metrics.register(cfg.Metrics); err != nil {
		return nil, err
	}
	var caches []controller.Cache
	if cfg.Mode != ModeOff {
		caches = kind.Caches()
	}
	g.control = controller.NewController("protect-"+name, caches...)
	var err error
	g.queue, err = controller.NewQueue(g.control, controller.Config{Name: "protect-" + name, Workers: cfg.Workers,
		Clock: cfg.Clock}, g.reconcile)
	return g, err
}

// Controller runs the Guard's queue. A kind may add queues of its own.
func (g *Guard) Controller() *controller.Controller { return g.control }

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A replica that
// waits for leadership calls it, so that it can act at once when it leads. It changes nothing in the
// cluster.
func (g *Guard) Watch(ctx context.Context) { g.control.Watch(ctx) }

// Run protects until ctx ends, which cuts off calls in flight, or until Stop, which lets them end; it
// returns when everything it started has ended. It is called once, by the one replica that leads. It
// watches by itself unless Watch already does; then it needs Watch to continue.
func (g *Guard) Run(ctx context.Context) error {
	if g.cfg.Mode != ModeOff {
		g.tracker.leads()
	}
	return g.control.Run(ctx, func(ctx context.Context) {
		klog.FromContext(ctx).Info("Protecting", "kind", g.name, "mode", g.cfg.Mode, "dryRun", g.cfg.DryRun)
		g.queue.AddAll(ctx, g.kind.Keys())
	})
}

// Stop lets the writes under way end and begins no more; Run then returns. It does not wait.
func (g *Guard) Stop() { g.control.Stop() }

// WaitSynced waits until the caches hold what the API server had when they were started. An error
// means that ctx ended before.
func (g *Guard) WaitSynced(ctx context.Context) error { return g.control.WaitSynced(ctx) }

// Synced reports whether WaitSynced would return at once.
func (g *Guard) Synced() bool { return g.control.Synced() }

// Enqueue has the object of a key decided on, while Run works: its first pass makes up for the rest.
func (g *Guard) Enqueue(key string) { g.queue.Enqueue(key) }

// Added brings in an object that the watch of the kind shows for the first time.
func (g *Guard) Added(now Object) { g.Enqueue(now.Key()) }

// Updated brings in a change.
func (g *Guard) Updated(before, now Object) {
	if before.UID != now.UID {
		g.Deleted(before, false)
		g.Added(now)
		return
	}
	g.othersAtWork(g.tracker.changed(before, now, g.cfg.Clock.Now()))
	g.Enqueue(now.Key())
}

// Deleted brings in an object's end. final: the end itself was seen.
func (g *Guard) Deleted(last Object, final bool) {
	g.othersAtWork(g.tracker.gone(last, final, g.cfg.Clock.Now()))
	g.recorder.Forget(last.UID)
}

func (g *Guard) othersAtWork(news bool) {
	if news && g.control.Working() {
		klog.Background().Info("Another controller manages the finalizer; leaving the objects to it", "kind", g.name)
	}
}

// eventOn returns what the Events of an object are about.
func (g *Guard) eventOn(o Object) events.Object {
	return events.Object{ObjectReference: v1.ObjectReference{
		APIVersion: "v1", Kind: g.name, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}}
}

func (c Config) retries() controller.Backoff {
	return controller.Backoff{First: c.RetryStart, Max: c.RetryMax}
}
