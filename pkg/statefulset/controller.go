package statefulset

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Controller carries out the retention policies of a cluster's StatefulSets. Its methods are safe for concurrent use.
type Controller struct {
	cfg     Config
	cluster cluster
	// authorization checks the permissions of this program.
	authorization authorizationv1.AuthorizationV1Interface
	observer      *observer
	// claimReports and setReports are separate, so that each kind has a metric of waiting objects.
	claimReports, setReports *events.Recorder[Reason]
	metrics                  metrics

	control      *controller.Controller
	claims, sets *controller.Queue[string]
}

// setWorkers is the number of sets in work at once.
const setWorkers = 2

// New returns a Controller for the cluster of config, which is copied. With a QPS of 0, only the number of workers
// limits the calls. New starts nothing, which is left to Run.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a controller for claims of StatefulSets: nil rest.Config")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a controller for claims of StatefulSets: %w", err)
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	c, err := newController(cfg, apiServer{clients, apiTimeout})
	if err != nil {
		return nil, err
	}
	c.authorization = clients.Authorization
	return c, c.run(c.observer.follow(clients, cfg.Watches)...)
}

// newController returns a Controller without caches and queues.
func newController(cfg Config, cluster cluster) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{cfg: cfg, cluster: cluster, metrics: newMetrics()}
	reports := events.Config[Reason]{Events: cfg.Events, Counter: c.metrics.reports}
	c.claimReports, c.setReports = events.NewRecorder(reports), events.NewRecorder(reports)
	c.observer = newObserver(cfg.rules(), cfg.Clock, woken{c})
	return c, c.register(cfg.Metrics)
}

// run adds the caches and the queues.
func (c *Controller) run(caches ...controller.Cache) error {
	c.control = controller.NewController("statefulset-claims", caches...)
	var err error
	if c.claims, err = controller.NewQueue(c.control, controller.Config{Name: "statefulset-claims",
		Workers: c.cfg.Workers, Clock: c.cfg.Clock}, c.reconcile); err != nil {
		return err
	}
	c.sets, err = controller.NewQueue(c.control, controller.Config{Name: "statefulset-claims-sets",
		Workers: setWorkers, Clock: c.cfg.Clock}, c.reconcileSet)
	return err
}

// woken enqueues the objects that a change in the watches affects.
type woken struct{ c *Controller }

func (w woken) working() bool                { return w.c.control.Working() }
func (w woken) claim(key string)             { w.c.claims.Enqueue(key) }
func (w woken) set(key string)               { w.c.sets.Enqueue(key) }
func (w woken) forgetClaim(c *claim)         { w.c.claimReports.Forget(c.uid) }
func (w woken) forgetSet(s *statefulset.Set) { w.c.setReports.Forget(s.UID) }

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. It changes nothing in the cluster,
// and lets a replica that waits for leadership act at once when it leads.
func (c *Controller) Watch(ctx context.Context) { c.control.Watch(ctx) }

// Run works until ctx ends, which cuts off calls in flight, or until Stop, which lets them end. It returns when
// everything it started has ended. Only the leading replica calls it, and only once: with leader election, ctx has to
// end with the lease.
//
// Run watches by itself unless Watch already does; then it needs Watch to continue. An error means that ctx ended
// before the caches were filled, and that nothing was decided.
func (c *Controller) Run(ctx context.Context) error { return c.control.Run(ctx, c.begin) }

// begin enqueues all claims and sets in the caches that may need work.
func (c *Controller) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Carrying out the retention policies of StatefulSets", "workers", c.cfg.Workers, "dryRun",
		c.cfg.DryRun, "scaleDownGrace", c.cfg.Grace)
	claims, sets := c.observer.first()
	c.sets.AddAll(ctx, sets)
	c.claims.AddAll(ctx, claims)
}

// WaitSynced waits until Synced, and returns an error if ctx ends before.
func (c *Controller) WaitSynced(ctx context.Context) error { return c.control.WaitSynced(ctx) }

// Synced reports whether the caches hold the state that the API server had when they were started.
func (c *Controller) Synced() bool { return c.control.Synced() }

// Stop lets current work end and begins no more, after which Run returns. It does not wait.
func (c *Controller) Stop() { c.control.Stop() }
