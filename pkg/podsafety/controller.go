package podsafety

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Controller holds the pods of a cluster; [controller.Controller] says how it is run. Its methods are safe for
// concurrent use.
type Controller struct {
	*controller.Controller
	permission.Checker
	cfg         Config
	cluster     cluster
	observer    *observer
	volumeLocks *volumeLocks
	recorder    *events.Recorder[podsafety.Reason]
	metrics     metrics

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
	c.Checker = permission.NewChecker(clients.Authorization, cfg.permissions())
	return c, c.run(c.observer.follow(clients, fences, cfg.Watches)...)
}

// newController returns a Controller without caches.
func newController(cfg Config, cluster cluster, locks lockClient) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{cfg: cfg, cluster: cluster, volumeLocks: newVolumeLocks(locks), metrics: newMetrics()}
	c.recorder = events.NewRecorder(events.Config[podsafety.Reason]{Events: cfg.Events, Counter: c.metrics.reports})
	c.observer = newObserver(cfg.rules(), cfg.NodeCondition, cfg.Clock, woken{c})
	return c, c.register(cfg.Metrics)
}

// run creates the queues, which work on the objects in the caches.
func (c *Controller) run(caches ...controller.Cache) error {
	c.Controller = controller.NewController("pod-safety", caches...)
	controller.Begin(c.Controller, c.watchForcePolicy, c.begin, c.beginClaims)
	if !c.cfg.DryRun {
		controller.Begin(c.Controller, c.sweepLocks)
	}
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
		made, err := controller.NewQueue(c.Controller, controller.Config{Name: queue.name, Workers: queue.workers,
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

func (w woken) working() bool         { return w.c.Working() }
func (w woken) pod(key string)        { w.c.pods.Enqueue(key) }
func (w woken) claim(key string)      { w.c.claims.Enqueue(key) }
func (w woken) namespace(name string) { w.c.namespaces.Enqueue(name) }
func (w woken) node(name string)      { w.c.markings.Enqueue(name) }

func (w woken) forget(p *pod) {
	w.c.recorder.Forget(p.uid)
	w.c.locks(p.node)
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
