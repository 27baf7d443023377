package podsafety

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

// Controller holds the pods of a cluster. Its methods are safe for concurrent use.
type Controller struct {
	cfg           Config
	cluster       cluster
	authorization authorizationv1.AuthorizationV1Interface
	observer      *observer
	volumeLocks   *volumeLocks
	recorder      *events.Recorder[Reason]
	metrics       metrics

	control                                      *controller.Controller
	pods, claims, lockings, namespaces, markings *controller.Queue[string]
}

// otherWorkers is the number of workers for namespaces, and for nodes.
const otherWorkers = 2

// New returns a Controller for the cluster of config, which is copied, and starts nothing: see Run. A QPS of 0 in
// config means that only the number of workers limits the calls.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a controller for pod safety: nil rest.Config")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a controller for pod safety: %w", err)
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	locks, err := newLockClient(config)
	if err != nil {
		return nil, err
	}
	var fences *client.Client
	if cfg.Fences {
		if fences, err = client.New(config); err != nil {
			return nil, err
		}
	}
	c, err := newController(cfg, apiServer{clients, fences, apiTimeout}, locks)
	if err != nil {
		return nil, err
	}
	c.authorization = clients.Authorization
	return c, c.run(c.observer.follow(clients, fences, cfg.Watches)...)
}

// newController returns a Controller without caches.
func newController(cfg Config, cluster cluster, locks lockClient) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{cfg: cfg, cluster: cluster, volumeLocks: newVolumeLocks(locks), metrics: newMetrics()}
	c.recorder = events.NewRecorder(events.Config[Reason]{Events: cfg.Events, Counter: c.metrics.reports})
	c.observer = newObserver(cfg.rules(), cfg.NodeCondition, cfg.Clock, woken{c})
	return c, c.register(cfg.Metrics)
}

// run creates the queues, which work on the objects in the caches.
func (c *Controller) run(caches ...controller.Cache) error {
	c.control = controller.NewController("pod-safety", caches...)
	for _, queue := range []struct {
		of        **controller.Queue[string]
		name      string
		workers   int
		reconcile controller.Reconciler[string]
	}{
		{&c.pods, "pod-safety", c.cfg.Workers, c.reconcile},
		{&c.claims, "pod-safety-claims", c.cfg.Workers, c.settleClaim},
		{&c.lockings, "pod-safety-volume-locks", c.cfg.Workers, c.lock},
		{&c.namespaces, "pod-safety-namespaces", otherWorkers, c.hold},
		{&c.markings, "pod-safety-nodes", otherWorkers, c.mark},
	} {
		made, err := controller.NewQueue(c.control, controller.Config{Name: queue.name, Workers: queue.workers,
			Clock: c.cfg.Clock}, queue.reconcile)
		if err != nil {
			return err
		}
		*queue.of = made
	}
	return nil
}

// woken enqueues the objects that the watches report.
type woken struct{ c *Controller }

func (w woken) working() bool         { return w.c.control.Working() }
func (w woken) pod(key string)        { w.c.pods.Enqueue(key) }
func (w woken) claim(key string)      { w.c.claims.Enqueue(key) }
func (w woken) namespace(name string) { w.c.namespaces.Enqueue(name) }
func (w woken) node(name string)      { w.c.markings.Enqueue(name) }

func (w woken) forget(p *pod) {
	w.c.recorder.Forget(p.uid)
	w.c.locks(p.node)
}

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. It changes no object in the
// cluster, so that a replica that waits for leadership can call it and act as soon as it leads.
func (c *Controller) Watch(ctx context.Context) { c.control.Watch(ctx) }

// Run works until ctx ends, which cancels calls in flight, or until Stop, which lets them finish, and returns when all
// its goroutines have ended. Only the leading replica calls Run, and only once; with leader election, ctx must end with
// the lease.
//
// Run starts the watches unless Watch runs already, and then relies on Watch to continue. It returns an error if ctx
// ended before the caches were filled, since no decision is made without them.
func (c *Controller) Run(ctx context.Context) error {
	also := []func(context.Context){c.watchForcePolicy, c.begin, c.beginClaims}
	if !c.cfg.DryRun {
		also = append(also, c.sweepLocks)
	}
	return c.control.Run(ctx, also...)
}

// begin enqueues every object in the caches that may need work.
func (c *Controller) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Holding pods until their processes have ended", "workers", c.cfg.Workers, "dryRun",
		c.cfg.DryRun, "deleteOrphans", c.cfg.DeleteOrphans, "volumeLocks", c.cfg.VolumeLocks)
	pods, namespaces, nodes := c.observer.first()
	for _, name := range namespaces {
		c.namespaces.Add(name)
	}
	for _, name := range nodes {
		woken{c}.node(name)
	}
	c.pods.AddAll(ctx, pods)
}

// WaitSynced waits until Synced returns true, and returns an error if ctx ends first.
func (c *Controller) WaitSynced(ctx context.Context) error { return c.control.WaitSynced(ctx) }

// Synced reports whether the caches hold the objects that the API server had when they were started.
func (c *Controller) Synced() bool { return c.control.Synced() }

// Stop lets the work in progress finish and begins no more, so that Run returns. It does not wait for that.
func (c *Controller) Stop() { c.control.Stop() }
