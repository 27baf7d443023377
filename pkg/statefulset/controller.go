package statefulset

import (
	"context"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Controller carries out the retention policies of a cluster's StatefulSets; [controller.Controller] says how it is
// run. Its methods are safe for concurrent use.
type Controller struct {
	*controller.Controller
	permission.Checker
	cfg      Config
	cluster  cluster
	observer *observer
	// claimReports and setReports are separate, so that each kind has a metric of waiting objects.
	claimReports, setReports *events.Recorder[statefulset.Reason]
	metrics                  metrics

	claims, sets *controller.Queue[string]
}

// setWorkers is the number of sets in work at once.
const setWorkers = 2

// New returns a Controller for the cluster of config, which is copied. With a QPS of 0, only the number of workers
// limits the calls. New starts nothing, which is left to Run.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	clients, err := controller.Connect("create a controller for claims of StatefulSets", config, cfg)
	if err != nil {
		return nil, err
	}
	c, err := newController(cfg, apiServer{clients})
	if err != nil {
		return nil, err
	}
	c.Checker = permission.NewChecker(clients.Authorization, cfg.permissions())
	controller.Follow(c.Controller, c.observer.follow(clients, cfg.Watches)...)
	return c, nil
}

// newController returns a Controller without caches.
func newController(cfg Config, cluster cluster) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{Controller: controller.NewController("statefulset-claims"), cfg: cfg, cluster: cluster,
		metrics: newMetrics()}
	reports := events.Config[statefulset.Reason]{Events: cfg.Events, Counter: c.metrics.reports}
	c.claimReports, c.setReports = events.NewRecorder(reports), events.NewRecorder(reports)
	c.observer = newObserver(cfg.rules(), cfg.Clock, woken{c})
	if err := c.register(cfg.Metrics); err != nil {
		return nil, err
	}
	controller.Begin(c.Controller, c.begin)
	c.claims = controller.QueueOf(c.Controller, cfg.Settings, "statefulset-claims", cfg.Workers, c.reconcile)
	c.sets = controller.QueueOf(c.Controller, cfg.Settings, "statefulset-claims-sets", setWorkers, c.reconcileSet)
	return c, nil
}

// woken enqueues the objects that a change in the watches affects.
type woken struct{ c *Controller }

func (w woken) working() bool                { return w.c.Working() }
func (w woken) claim(key string)             { w.c.claims.Enqueue(key) }
func (w woken) set(key string)               { w.c.sets.Enqueue(key) }
func (w woken) forgetClaim(c *claim)         { w.c.claimReports.Forget(c.uid) }
func (w woken) forgetSet(s *statefulset.Set) { w.c.setReports.Forget(s.UID) }

// begin enqueues all claims and sets in the caches that may need work.
func (c *Controller) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Carrying out the retention policies of StatefulSets", "workers", c.cfg.Workers, "dryRun",
		c.cfg.DryRun, "scaleDownGrace", c.cfg.Grace)
	claims, sets := c.observer.first()
	c.sets.AddAll(ctx, sets)
	c.claims.AddAll(ctx, claims)
}
