package inuse

import (
	"context"
	"fmt"

	"k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

// Kind is one kind of protected object, whose methods are safe for concurrent use.
type Kind interface {
	// Decide decides on the object of a key by the state that the watches show; duty returns the Duty for it. found is
	// false if the object does not exist.
	Decide(key string, duty func(Object) Duty) (o Object, d Decision, found bool)
	// Get returns the object of a key that the watch shows.
	Get(key string) (o Object, found bool)
	// ReadUsers starts a read of the object's users without blocking; its result enqueues the object.
	ReadUsers(o Object)
	// Patch carries out AddFinalizer or RemoveFinalizer and returns the resulting object, or an error of package kube.
	Patch(ctx context.Context, o Object, a Action) (after Object, err error)
	// Keys returns the keys of all objects that may need a write.
	Keys() []string
	// List reads all objects from the API server.
	List(ctx context.Context) ([]Held, error)
}

// Guard protects the objects of one kind; [controller.Controller] says how it is run. A kind may add its own queues to
// the Controller.
type Guard struct {
	*controller.Controller
	name     string
	cfg      Config
	kind     Kind
	tracker  *tracker
	recorder *events.Recorder[Reason]
	metrics  *metrics
	queue    *controller.Queue[string]
}

// New returns a Guard for the kind with this name ("PersistentVolume"), which does nothing before Run. Decide reads the
// caches, which run unless the mode is ModeOff.
func New(name string, kind Kind, cfg Config, caches ...controller.Cache) (*Guard, error) {
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
	if cfg.Mode == ModeOff {
		caches = nil
	}
	g.Controller = controller.NewController("protect-"+name, caches...)
	controller.Begin(g.Controller, g.begin)
	g.queue = controller.QueueOf(g.Controller, cfg.Settings, "protect-"+name, cfg.Workers, g.reconcile)
	return g, nil
}

// Run is Run of the Controller. A need that stays unanswered from now on proves that no other controller does the work.
func (g *Guard) Run(ctx context.Context) error {
	if g.cfg.Mode != ModeOff {
		g.tracker.leads()
	}
	return g.Controller.Run(ctx)
}

// begin enqueues every object that may need a write.
func (g *Guard) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Protecting", "kind", g.name, "mode", g.cfg.Mode, "dryRun", g.cfg.DryRun)
	g.queue.AddAll(ctx, g.kind.Keys())
}

// Enqueue has the object of a key decided on while Run works. Keys enqueued earlier are not lost, because Run begins
// with all keys.
func (g *Guard) Enqueue(key string) { g.queue.Enqueue(key) }

// Added handles an object that the watch of the kind shows for the first time.
func (g *Guard) Added(now Object) { g.Enqueue(now.Key()) }

// Updated handles a change of an object.
func (g *Guard) Updated(before, now Object) {
	if before.UID != now.UID {
		g.Deleted(before, false)
		g.Added(now)
		return
	}
	g.othersAtWork(g.tracker.changed(before, now, g.cfg.Clock.Now()))
	g.Enqueue(now.Key())
}

// Deleted handles the deletion of an object, where final is false if the deletion event itself was missed.
func (g *Guard) Deleted(last Object, final bool) {
	g.othersAtWork(g.tracker.gone(last, final, g.cfg.Clock.Now()))
	g.recorder.Forget(last.UID)
}

func (g *Guard) othersAtWork(news bool) {
	if news && g.Working() {
		klog.Background().Info("Another controller manages the finalizer; leaving the objects to it", "kind", g.name)
	}
}

// eventOn returns the subject of an object's Events.
func (g *Guard) eventOn(o Object) events.Object {
	return events.Object{ObjectReference: v1.ObjectReference{
		APIVersion: "v1", Kind: g.name, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}}
}
