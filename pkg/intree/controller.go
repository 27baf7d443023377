package intree

import (
	"context"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Controller carries out the reclaim policy of the cluster's in-tree PVs; [controller.Controller] says how it is run.
type Controller struct {
	*controller.Controller
	permission.Checker
	cfg      Config
	cluster  cluster
	observer *observer
	recorder *events.Recorder[intree.Reason]
	metrics  metrics
	queue    *controller.Queue[string]
}

// New returns a Controller for the cluster of config, which is copied; with a QPS of 0, only the number of workers
// limits the calls. New starts nothing: see Run.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	clients, err := controller.Connect("create a controller for in-tree PVs", config, cfg)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c := &Controller{cfg: cfg, cluster: apiServer{clients}, metrics: newMetrics(),
		Checker: permission.NewChecker(clients.Authorization, cfg.permissions())}
	c.recorder = events.NewRecorder(events.Config[intree.Reason]{Events: cfg.Events, Counter: c.metrics.reports})
	c.observer = newObserver(func(pv string) { c.queue.Enqueue(pv) }, c.recorder.Forget)
	c.observer.follow(clients, cfg.Watches)
	if err := c.register(cfg.Metrics); err != nil {
		return nil, err
	}
	c.Controller = controller.NewController("intree", c.observer.watch)
	controller.Begin(c.Controller, c.begin)
	c.queue = controller.QueueOf(c.Controller, cfg.Settings, "intree", cfg.Workers, c.reconcile)
	return c, nil
}

// begin enqueues every PV in the cache that may need work.
func (c *Controller) begin(ctx context.Context) {
	_, managed := c.observer.other()
	klog.FromContext(ctx).Info("Carrying out the reclaim policy of in-tree PVs", "workers", c.cfg.Workers, "dryRun",
		c.cfg.DryRun, "managedByOther", managed)
	c.queue.AddAll(ctx, c.observer.names())
}
