package singlenode

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Config holds the settings of a Controller, and is usable in its zero value. Workers bounds the concurrent calls
// to the API server, and Events are recorded on pods, and on a claim if a person has to act.
type Config struct {
	controllers.Settings
	// UnmountGrace is the delay for the unmount of the volumes of a completed pod, such as the pod of a Job, and defaults
	// to 30 seconds if 0.
	UnmountGrace time.Duration
	// Fences frees locks if a NodeFence keeps the node of a terminating pod from the volume. It needs the kind NodeFence
	// (deploy/manifests/node-fencing-crd.yaml) and a program that carries fences out. Default off.
	Fences bool
	// WatchFences has the wait for an unmount last while a NodeFence may keep the node from volumes, although no fence is
	// evidence. It needs the kind NodeFence, and Fences includes it. Default off.
	WatchFences bool
}

func (c Config) withDefaults() Config {
	c.Settings = c.WithDefaults()
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() singlenode.Rules {
	return singlenode.Rules{UnmountGrace: c.UnmountGrace, DryRun: c.DryRun}
}

// Validate returns an error for every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.UnmountGrace < 0, "unmount grace: %v is negative", c.UnmountGrace)
	return errors.Join(wrong.Err(), c.Settings.Validate())
}

// permissions returns the permissions that a Controller with this Config needs.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	var needed controller.Permissions
	const (
		nothing  = "locks of claims are not observed, so pods that wait for one are not scheduled"
		noLock   = "no claim gets a lock, so pods that wait for one are not scheduled"
		notFreed = "no lock of a claim is freed, so pods that wait for one are not scheduled"
	)
	needed.AddUnsafe("", "pods", nothing, "list", "watch")
	needed.AddUnsafe("", "persistentvolumeclaims", nothing, "list", "watch")
	needed.AddUnsafe("", "namespaces", "namespaces that ask for locks of claims are not observed", "list", "watch")
	needed.AddUnsafe("", "persistentvolumes", nothing, "list", "watch")
	needed.AddUnsafe("storage.k8s.io", "storageclasses", nothing, "list", "watch")
	needed.AddUnsafe("", "nodes", nothing, "list", "watch")
	needed.AddUnsafe("", "pods", notFreed, "get")
	needed.AddUnsafe("", "persistentvolumeclaims", noLock, "get")
	const notAsked = "pods whose claims need no lock keep their scheduling gate"
	needed.Add("", "persistentvolumes", notAsked, "get")
	needed.Add("storage.k8s.io", "storageclasses", notAsked, "get")
	needed.Add("", "namespaces", notAsked, "get")
	if c.Fences || c.WatchFences {
		needed.AddUnsafe(v1alpha1.GroupVersion.Group, client.FenceResource,
			"whether a fence hinders the unmount of volumes is not observed", "list", "watch")
	}
	if c.Fences {
		const unfenced = "locks of pods on nodes that a fence keeps from the volume are not freed"
		needed.Add(v1alpha1.GroupVersion.Group, client.FenceResource, unfenced, "get")
		needed.Add("", "nodes", unfenced, "get")
	}
	if !c.DryRun {
		needed.Add("", "pods", "no scheduling gate is removed, so pods with claims are not scheduled", "patch")
		needed.Add("", "persistentvolumeclaims", noLock, "patch")
	}
	needed.AddEvents(c.Events, "only the log and the metrics show why a pod waits")
	return needed.All
}

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
	config = kube.Limited(config)
	clients, err := controller.Connect("create a controller for locks of claims", config, cfg)
	if err != nil {
		return nil, err
	}
	var fences *client.Client
	if cfg.Fences || cfg.WatchFences {
		if fences, err = client.New(config); err != nil {
			return nil, err
		}
	}
	c, err := newController(cfg, apiServer{clients, fences})
	if err != nil {
		return nil, err
	}
	c.Checker = permission.NewChecker(clients.Authorization, cfg.permissions())
	controller.Follow(c.Controller, c.observer.follow(clients, fences, cfg.Fences, cfg.Watches)...)
	return c, nil
}

// newController returns a Controller without caches.
func newController(cfg Config, cluster cluster) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{Controller: controller.NewController("single-node"), cfg: cfg, cluster: cluster,
		metrics: newMetrics(), slots: make(chan struct{}, cfg.Workers)}
	c.users, c.ungating = newUsers(c.listUsers, cfg.Clock.Now), newUngating()
	reports := events.Config[singlenode.Reason]{Events: cfg.Events, Counter: c.metrics.reports, Clock: cfg.Clock}
	c.podReports, c.claimReports = events.NewRecorder(reports), events.NewRecorder(reports)
	if err := c.register(cfg.Metrics); err != nil {
		return nil, err
	}
	controller.Begin(c.Controller, c.begin)
	c.pods = controller.QueueOf(c.Controller, cfg.Settings, "single-node", sessionsPerSlot*cfg.Workers, c.reconcile)
	c.locks = controller.QueueOf(c.Controller, cfg.Settings, "single-node-locks", cfg.Workers, c.reconcileLock)
	c.observer = newObserver(cfg.rules(), cfg.Clock, wake{pod: c.pods.Enqueue, claim: c.locks.Enqueue,
		forgetPod: c.podReports.Forget, forgetClaim: c.claimReports.Forget, working: c.Working})
	return c, nil
}

// begin enqueues all gated pods and locks in the caches.
func (c *Controller) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Giving out the locks of claims", "workers", c.cfg.Workers, "dryRun", c.cfg.DryRun,
		"unmountGrace", c.cfg.UnmountGrace, "fences", c.cfg.Fences)
	pods, claims := c.observer.first()
	c.locks.AddAll(ctx, claims)
	c.pods.AddAll(ctx, pods)
}
