package singlenode

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Controller assigns and frees the locks of the claims of a cluster; [controller.Controller] says how it is run. Its
// methods are safe for concurrent use.
type Controller struct {
	*controller.Controller
	permission.Checker
	cfg     Config
	cluster cluster
	users   *users
	// ungating are the pods that may lose their gate without a lock.
	ungating *ungating
	// slots bounds the concurrent calls to the API server.
	slots    chan struct{}
	observer *observer
	// podReports and claimReports are separate, so that the metric of waiting pods counts no claims.
	podReports, claimReports *events.Recorder[singlenode.Reason]
	metrics                  metrics

	pods, locks *controller.Queue[string]
}

// sessionsPerSlot is the number of gated pods in work for each concurrent call. Most of them wait for a list that they
// share.
const sessionsPerSlot = 20

// New returns a Controller for the cluster of config, which is copied. With a QPS of 0, only Config.Workers limits the
// calls. New starts nothing: see Run.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	clients, err := controller.Connect("create a controller for locks of claims", config, cfg)
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
	c.Checker = permission.NewChecker(clients.Authorization, cfg.permissions())
	controller.Follow(c.Controller, c.observer.follow(clients, fences, cfg.Watches)...)
	return c, nil
}

// newController returns a Controller without caches.
func newController(cfg Config, cluster cluster) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{Controller: controller.NewController("single-node"), cfg: cfg, cluster: cluster,
		metrics: newMetrics(), slots: make(chan struct{}, cfg.Workers)}
	c.users, c.ungating = newUsers(c.listUsers, cfg.Clock.Now), newUngating()
	reports := events.Config[singlenode.Reason]{Events: cfg.Events, Counter: c.metrics.reports}
	c.podReports, c.claimReports = events.NewRecorder(reports), events.NewRecorder(reports)
	c.observer = newObserver(cfg.rules(), cfg.Clock, woken{c})
	if err := c.register(cfg.Metrics); err != nil {
		return nil, err
	}
	controller.Begin(c.Controller, c.begin)
	c.pods = controller.QueueOf(c.Controller, cfg.Settings, "single-node", sessionsPerSlot*cfg.Workers, c.reconcile)
	c.locks = controller.QueueOf(c.Controller, cfg.Settings, "single-node-locks", cfg.Workers, c.reconcileLock)
	return c, nil
}

// woken enqueues the objects that a change in the watches affects.
type woken struct{ c *Controller }

func (w woken) working() bool             { return w.c.Working() }
func (w woken) pod(key string)            { w.c.pods.Enqueue(key) }
func (w woken) claim(key string)          { w.c.locks.Enqueue(key) }
func (w woken) forgetPod(uid types.UID)   { w.c.podReports.Forget(uid) }
func (w woken) forgetClaim(uid types.UID) { w.c.claimReports.Forget(uid) }

// begin enqueues all gated pods and locks in the caches.
func (c *Controller) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Giving out the locks of claims", "workers", c.cfg.Workers, "dryRun", c.cfg.DryRun,
		"unmountGrace", c.cfg.UnmountGrace, "fences", c.cfg.Fences)
	pods, claims := c.observer.first()
	c.locks.AddAll(ctx, claims)
	c.pods.AddAll(ctx, pods)
}
