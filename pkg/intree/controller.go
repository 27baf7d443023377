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

const apiTimeout = 30 * time.Second

// Controller carries out the reclaim policy of the cluster's in-tree PVs.
type Controller struct {
	cfg     Config
	cluster cluster
	// authorization checks the permissions of this program.
	authorization authorizationv1.AuthorizationV1Interface
	observer      *observer
	recorder      *events.Recorder[Reason]
	metrics       metrics

	control *controller.Controller
	queue   *controller.Queue[string]
}

// New returns a Controller for the cluster of config, which is copied; with a QPS of 0, only the number of workers
// limits the calls. New starts nothing: see Run.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a controller for in-tree PVs: nil rest.Config")
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
	c.observer.follow(clients, cfg.Watches)
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
// calls it, so that it can act as soon as it leads; it changes nothing in the cluster.
func (c *Controller) Watch(ctx context.Context) { c.control.Watch(ctx) }

// Run works until ctx ends, which cancels calls in flight, or until Stop, which lets them finish, and returns when all
// its goroutines have ended. It is called once, on the leading replica only: with leader election, ctx must end with
// the lease.
//
// Run watches by itself unless Watch already does, and then relies on Watch to continue. An error means that ctx ended
// before the cache was filled; nothing is decided on an incomplete cache.
func (c *Controller) Run(ctx context.Context) error {
	return c.control.Run(ctx, func(ctx context.Context) {
		_, managed := c.observer.other()
		klog.FromContext(ctx).Info("Carrying out the reclaim policy of in-tree PVs", "workers", c.cfg.Workers, "dryRun",
			c.cfg.DryRun, "managedByOther", managed)
		c.queue.AddAll(ctx, c.observer.names())
	})
}

// WaitSynced waits until Synced, and returns an error if ctx ends first.
func (c *Controller) WaitSynced(ctx context.Context) error { return c.control.WaitSynced(ctx) }

// Synced reports whether the cache holds the state that the API server had when the cache was started.
func (c *Controller) Synced() bool { return c.control.Synced() }

// Stop lets the work under way finish and starts no more, after which Run returns; Stop itself does not wait.
func (c *Controller) Stop() { c.control.Stop() }
