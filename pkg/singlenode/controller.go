package singlenode

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

// Controller gives out the locks of the claims of a cluster, and frees them. Its methods are safe for concurrent use.
type Controller struct {
	cfg     Config
	cluster cluster
	users   *users
	// ungating are pods that may lose their gate without a lock.
	ungating *ungating
	// slots bounds how many calls to the API server are made at once.
	slots chan struct{}
	// authorization checks what this program may do.
	authorization authorizationv1.AuthorizationV1Interface
	observer      *observer
	// podReports and claimReports are apart, so that each kind has its count of what waits.
	podReports, claimReports *events.Recorder[Reason]
	metrics                  metrics

	control     *controller.Controller
	pods, locks *controller.Queue[string]
}

// sessionsPerSlot is how many gated pods are worked on at once for each call that may be made at once: most wait for a
// list that they share.
const sessionsPerSlot = 20

// New returns a Controller for the cluster that config describes; config is copied, and a QPS of 0
// means that nothing but Config.Workers limits the calls. Nothing is started: see Run.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a controller for locks of claims: no cluster is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a controller for locks of claims: %w", err)
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	var fences *client.Client
	if cfg.Fences {
		if fences, err = client.New(config); err != nil {
			return nil, err
		}
	}
	c, err := newController(cfg, apiServer{clients, fences, apiTimeout})
	if err != nil {
		return nil, err
	}
	c.authorization = clients.Authorization
	return c, c.run(c.observer.follow(clients, fences)...)
}

// newController returns a Controller without caches.
func newController(cfg Config, cluster cluster) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{cfg: cfg, cluster: cluster, metrics: newMetrics(), slots: make(chan struct{}, cfg.Workers)}
	c.users, c.ungating = newUsers(c.listUsers, cfg.Clock.Now), newUngating()
	reports := events.Config[Reason]{Events: cfg.Events, Counter: c.metrics.reports}
	c.podReports, c.claimReports = events.NewRecorder(reports), events.NewRecorder(reports)
	c.observer = newObserver(cfg.rules(), cfg.Clock, woken{c})
	return c, c.register(cfg.Metrics)
}

// run makes what works from the caches.
func (c *Controller) run(caches ...controller.Cache) error {
	c.control = controller.NewController("single-node", caches...)
	var err error
	if c.pods, err = controller.NewQueue(c.control, controller.Config{Name: "single-node",
		Workers: sessionsPerSlot * c.cfg.Workers, Clock: c.cfg.Clock}, c.reconcile); err != nil {
		return err
	}
	c.locks, err = controller.NewQueue(c.control, controller.Config{Name: "single-node-locks",
		Workers: c.cfg.Workers, Clock: c.cfg.Clock}, c.reconcileLock)
	return err
}

// woken has the queues work on what the watches show.
type woken struct{ c *Controller }

func (w woken) working() bool             { return w.c.control.Working() }
func (w woken) pod(key string)            { w.c.pods.Enqueue(key) }
func (w woken) claim(key string)          { w.c.locks.Enqueue(key) }
func (w woken) forgetPod(uid types.UID)   { w.c.podReports.Forget(uid) }
func (w woken) forgetClaim(uid types.UID) { w.c.claimReports.Forget(uid) }

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A replica that waits for
// leadership calls it, so that it can act at once when it leads. It changes nothing in the cluster.
func (c *Controller) Watch(ctx context.Context) { c.control.Watch(ctx) }

// Run works until ctx ends, which cuts off calls in flight, or until Stop, which lets them end; it returns when
// everything it started has ended. It is called once, by the one replica that leads: where leader election is used, ctx
// has to end with the lease.
//
// Run watches by itself unless Watch already does; then it needs Watch to continue. An error means that ctx ended
// before the caches were filled; nothing is decided from less.
func (c *Controller) Run(ctx context.Context) error { return c.control.Run(ctx, c.begin) }

// begin has everything worked on that the caches show at the start.
func (c *Controller) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Giving out the locks of claims", "workers", c.cfg.Workers, "dryRun", c.cfg.DryRun,
		"unmountGrace", c.cfg.UnmountGrace, "fences", c.cfg.Fences)
	pods, claims := c.observer.first()
	c.locks.AddAll(ctx, claims)
	c.pods.AddAll(ctx, pods)
}

// WaitSynced waits until Synced. An error means that ctx ended before.
func (c *Controller) WaitSynced(ctx context.Context) error { return c.control.WaitSynced(ctx) }

// Synced reports whether the caches hold what the API server had when they were started.
func (c *Controller) Synced() bool { return c.control.Synced() }

// Stop lets the work under way end and begins no more; Run then returns. It does not wait.
func (c *Controller) Stop() { c.control.Stop() }
