package fencing

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Controller fences the nodes of a cluster. Its methods are safe for concurrent use.
type Controller struct {
	cfg      Config
	cluster  cluster
	policies policyCluster
	runner   runner
	// discovery and authorization check whether this program can work.
	discovery     discovery.DiscoveryInterface
	authorization authorizationv1.AuthorizationV1Interface
	observer      *observer
	view          *view
	// reports are on NodeFences, policyReports on FencePolicies, and judgements on nodes that a FencePolicy judges. They
	// are apart, so that each kind has its count of what waits.
	reports, policyReports, judgements *events.Recorder[Reason]
	metrics                            metrics

	control             *controller.Controller
	fences, policyQueue *controller.Queue[string]
}

// New returns a Controller for the cluster that config describes; config is copied, and a QPS of 0
// means that nothing but the number of workers limits the calls. Nothing is started: see Run.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a controller that fences nodes: no cluster is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a controller that fences nodes: %w", err)
	}
	clients, err := newClients(config)
	if err != nil {
		return nil, err
	}
	server := apiServer{clients, apiTimeout, &detaching{clock: settings.Clock(cfg.Clock)}}
	c, err := newController(cfg, server, server, clients.runner)
	if err != nil {
		return nil, err
	}
	c.discovery, c.authorization = clients.all.Discovery(), clients.Authorization
	return c, c.run(c.observer.follow(clients)...)
}

// newController returns a Controller without caches.
func newController(cfg Config, cluster cluster, policies policyCluster, runner runner) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{cfg: cfg, cluster: cluster, policies: policies, runner: runner, metrics: newMetrics(),
		view: newView(cfg.SilentAfter)}
	reports := events.Config[Reason]{Events: cfg.Events, Counter: c.metrics.reports}
	c.reports, c.policyReports, c.judgements = events.NewRecorder(reports), events.NewRecorder(reports),
		events.NewRecorder(reports)
	c.observer = newObserver(cfg.rules(), woken{c})
	return c, c.register(cfg.Metrics)
}

// run makes what works from the caches.
func (c *Controller) run(caches ...controller.Cache) error {
	c.control = controller.NewController("node-fencing", caches...)
	var err error
	if c.fences, err = controller.NewQueue(c.control, controller.Config{Name: "node-fencing", Workers: c.cfg.Workers,
		Clock: c.cfg.Clock}, c.reconcile); err != nil {
		return err
	}
	c.policyQueue, err = controller.NewQueue(c.control, controller.Config{Name: "node-fencing-policies", Workers: 1,
		Clock: c.cfg.Clock}, c.reconcilePolicy)
	return err
}

// woken has the queues work on what the watches show.
type woken struct{ c *Controller }

func (w woken) fence(name string)           { w.c.fences.Enqueue(name) }
func (w woken) forgetFence(fence types.UID) { w.c.reports.Forget(fence) }
func (w woken) policy(name string)          { w.c.policyQueue.Enqueue(name) }
func (w woken) reached(name string)         { w.c.view.reached(name) }

func (w woken) forgetPolicy(p *policy) {
	w.c.policyReports.Forget(p.uid)
	w.c.observer.forgetJudged(p.uid, nil, w.c.judgements.Forget)
}

// Installed returns ErrNotInstalled if the API server does not have the kinds that the controller works on. An error of
// another kind means that this could not be found out.
func (c *Controller) Installed(ctx context.Context) error { return installed(ctx, c.discovery) }

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A replica that waits for
// leadership calls it, so that it can act at once when it leads. It changes nothing in the cluster.
func (c *Controller) Watch(ctx context.Context) { c.control.Watch(ctx) }

// Run works until ctx ends, which cuts off calls in flight, or until Stop, which lets them end; it returns when
// everything it started has ended. It is called once, by the one replica that leads: where leader election is used, ctx
// has to end with the lease.
//
// Run watches by itself unless Watch already does; then it needs Watch to continue. An error means that ctx ended
// before the caches were filled; nothing is decided from less.
func (c *Controller) Run(ctx context.Context) error { return c.control.Run(ctx, c.begin, c.pollLeases) }

// begin has everything worked on that the caches show at the start.
func (c *Controller) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Fencing nodes", "workers", c.cfg.Workers, "dryRun", c.cfg.DryRun, "keepReturned",
		c.cfg.KeepReturned)
	fences, policies := c.observer.first()
	c.fences.AddAll(ctx, fences)
	c.policyQueue.AddAll(ctx, policies)
}

// WaitSynced waits until Synced. An error means that ctx ended before.
func (c *Controller) WaitSynced(ctx context.Context) error { return c.control.WaitSynced(ctx) }

// Synced reports whether the caches hold what the API server had when they were started.
func (c *Controller) Synced() bool { return c.control.Synced() }

// Stop lets the work under way end and begins no more; Run then returns. It does not wait.
func (c *Controller) Stop() { c.control.Stop() }
