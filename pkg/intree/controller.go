package intree

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// apiTimeout bounds one call to the API server.
const apiTimeout = 30 * time.Second

// Controller honours the reclaim policy of the cluster's in-tree PVs.
type Controller struct {
	cfg     Config
	cluster cluster
	// authorization tells what this program may do.
	authorization authorizationv1.AuthorizationV1Interface
	observer      *observer
	reports       *reports
	metrics       *metrics
	loop          *controller.Loop[string]

	watching atomic.Bool
	// awake: Run has begun to work on PVs.
	awake atomic.Bool
}

// New returns a Controller for the cluster that config describes; config is copied, and a QPS of 0
// means that nothing but the number of workers limits the calls. Nothing is started: see Run.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("make a controller of in-tree PVs: no cluster is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make a controller of in-tree PVs: %w", err)
	}
	cfg = cfg.withDefaults()
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	c := &Controller{cfg: cfg, cluster: apiServer{clients, apiTimeout}, authorization: clients.Authorization, metrics: newMetrics()}
	c.reports = newReports(cfg.Events, func(reason Reason) { c.metrics.told.WithLabelValues(string(reason)).Inc() })
	c.observer = newObserver(c.wake, c.reports.Forget)
	c.observer.follow(clients)
	if c.loop, err = controller.New(controller.Config{Name: "intree", Workers: cfg.Workers, Clock: cfg.Clock}, c.reconcile); err != nil {
		return nil, err
	}
	if err := register(cfg.Metrics, c.metrics.deleted, c.metrics.told, newInventory(c.observer, c.reports, cfg.Clock)); err != nil {
		return nil, err
	}
	return c, nil
}

// Watch keeps the cache up to date until ctx ends, and returns when it has stopped. A replica that
// waits to lead calls it, so that it can act at once when it does. It changes nothing in the cluster.
func (c *Controller) Watch(ctx context.Context) {
	if !c.watching.CompareAndSwap(false, true) {
		// Somebody else watches already, and for longer than this caller may.
		<-ctx.Done()
		return
	}
	c.observer.watch.Run(ctx)
}

// Run works until ctx ends, which cuts off calls in flight, or until Stop, which lets them end; it
// returns when everything it started has ended. It is called once, by the one replica that leads: where
// leader election is used, ctx is to end with the lease.
//
// Run watches by itself unless Watch already does; then it needs Watch to go on.
func (c *Controller) Run(ctx context.Context) error {
	return c.watched(ctx, func(ctx context.Context) error {
		c.awake.Store(true)
		defer c.awake.Store(false)
		filled := make(chan struct{})
		go func() { defer close(filled); c.loop.AddAll(ctx, c.observer.names()) }()
		klog.FromContext(ctx).Info("Honouring the reclaim policy of in-tree PVs", "workers", c.cfg.Workers, "dryRun", c.cfg.DryRun, "managedByOther", c.observer.notes.evidence())
		c.loop.Run(ctx)
		<-filled
		return nil
	})
}

// watched does something while the cache is kept up to date, from when it first is.
func (c *Controller) watched(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); c.Watch(ctx) }()
	defer func() { cancel(); <-watched }()
	if err := c.WaitSynced(ctx); err != nil {
		return err
	}
	return do(ctx)
}

// WaitSynced waits until the cache holds what the API server had when it was started: nothing is
// decided from less. An error means that ctx ended before.
func (c *Controller) WaitSynced(ctx context.Context) error {
	if !cache.WaitFor(ctx, "the first list from the API server", c.observer.watch.Sync()) {
		return fmt.Errorf("wait for the first list of PVs: %w", context.Cause(ctx))
	}
	return nil
}

// Synced tells whether WaitSynced would return at once.
func (c *Controller) Synced() bool { return c.observer.watch.Synced() }

// Stop lets the work in hand end and begins no more; Run then returns. It does not wait.
func (c *Controller) Stop() { c.loop.Stop() }

// wake has a PV decided on. Before Run works nobody would: a replica that waits to lead would only pile
// up names. What is missed by that, Run makes up for by looking at every PV.
func (c *Controller) wake(pv string) {
	if c.awake.Load() {
		c.loop.Add(pv)
	}
}
