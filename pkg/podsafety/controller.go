package podsafety

import (
	"context"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
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
	clients, err := controller.Connect("create a controller for pod safety", config, cfg)
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
	controller.Follow(c.Controller, c.observer.follow(clients, fences, cfg.Watches)...)
	return c, nil
}

// newController returns a Controller without caches.
func newController(cfg Config, cluster cluster, locks lockClient) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{Controller: controller.NewController("pod-safety"), cfg: cfg, cluster: cluster,
		volumeLocks: newVolumeLocks(locks), metrics: newMetrics()}
	c.recorder = events.NewRecorder(events.Config[podsafety.Reason]{Events: cfg.Events, Counter: c.metrics.reports})
	c.observer = newObserver(cfg.rules(), cfg.NodeCondition, cfg.Clock, woken{c})
	if err := c.register(cfg.Metrics); err != nil {
		return nil, err
	}
	controller.Begin(c.Controller, c.watchForcePolicy, c.orderStarts, c.begin, c.beginClaims)
	if !cfg.DryRun {
		controller.Begin(c.Controller, c.sweepLocks)
	}
	c.pods = controller.QueueOf(c.Controller, cfg.Settings, "pod-safety", cfg.Workers, c.reconcile)
	c.claims = controller.QueueOf(c.Controller, cfg.Settings, "pod-safety-claims", cfg.Workers, c.settleClaim)
	c.lockings = controller.QueueOf(c.Controller, cfg.Settings, "pod-safety-volume-locks", cfg.Workers, c.lock)
	c.namespaces = controller.QueueOf(c.Controller, cfg.Settings, "pod-safety-namespaces", otherWorkers, c.hold)
	c.markings = controller.QueueOf(c.Controller, cfg.Settings, "pod-safety-nodes", otherWorkers, c.mark)
	return c, nil
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

// failed logs an error and returns when to retry, or returns that the work is done if the error is nil.
func (c *Controller) failed(ctx context.Context, what string, err error, about ...any) controller.Result {
	failure := controller.FailureOf(ctx, err)
	if failure == controller.Retryable || failure == controller.Lasting {
		klog.FromContext(ctx).Error(err, what+" failed; retrying", about...)
	}
	return failure.Result(controller.Retries(c.cfg.Settings))
}
