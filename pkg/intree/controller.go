package intree

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// apiTimeout bounds one call to the API server.
const apiTimeout = 30 * time.Second

// Controller carries out the reclaim policy of the cluster's in-tree PVs.
type Controller struct {
	cfg     Config
	cluster cluster
	// authorization checks what this program may do.
	authorization authorizationv1.AuthorizationV1Interface
	observer      *observer
	recorder      *events.Recorder[Reason]
	metrics       metrics

	control *controller.Controller
	queue   *controller.Queue[string]
}

// New returns a Controller for the cluster that config describes; config is copied, and a QPS of 0
// means that nothing but the number of workers limits the calls. Nothing is started: see Run.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a controller for in-tree PVs: no cluster is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a controller for in-tree PVs: %w", err)
	}
	cfg = cfg.withDefaults()
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	c := &Controller{cfg: cfg, cluster: apiServer{clients, apiTimeout}, authorization: clients.Authorization,
		metrics: newMetrics()}
	c.recorder = events.NewRecorder(events.Config[Reason]{Events: cfg.Events, Counter: c.metrics.reports})
	c.observer = newObserver(func(pv string) { c.queue.Enqueue(pv) }, c.recorder.Forget)
	c.observer.follow(clients)
	c.control = controller.NewController("intree", c.observer.watch)
	if c.queue, err = controller.NewQueue(c.control, controller.Config{Name: "intree", Workers: cfg.Workers,
		Clock: cfg.Clock}, c.reconcile); err != nil {
		return nil, err
	}
	if err := c.register(cfg.Metrics); err != nil {
		return nil, err
	}
	return c, nil
}

// Watch keeps the cache up to date until ctx ends, and returns when it has stopped. A replica that waits for leadership
// calls it, so that it can act at once when it leads. It changes nothing in the cluster.
func (c *Controller) Watch(ctx context.Context) { c.control.Watch(ctx) }

// Run works until ctx ends, which cuts off calls in flight, or until Stop, which lets them end; it returns when
// everything it started has ended. It is called once, by the one replica that leads: where leader election is used, ctx
// has to end with the lease.
//
// Run watches by itself unless Watch already does; then it needs Watch to continue. An error means that ctx ended
// before the cache was filled; nothing is decided from less.
func (c *Controller) Run(ctx context.Context) error {
	return c.control.Run(ctx, func(ctx context.Context) {
		_, managed := c.observer.other()
		klog.FromContext(ctx).Info("Carrying out the reclaim policy of in-tree PVs", "workers", c.cfg.Workers, "dryRun",
			c.cfg.DryRun, "managedByOther", managed)
		c.queue.AddAll(ctx, c.observer.names())
	})
}

// WaitSynced waits until Synced. An error means that ctx ended before.
func (c *Controller) WaitSynced(ctx context.Context) error { return c.control.WaitSynced(ctx) }

// Synced reports whether the cache holds what the API server had when it was started.
func (c *Controller) Synced() bool { return c.control.Synced() }

// Stop lets the work under way end and begins no more; Run then returns. It does not wait.
func (c *Controller) Stop() { c.control.Stop() }
