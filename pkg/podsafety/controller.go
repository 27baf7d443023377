package podsafety

import (
	"cmp"
	"context"
	"errors"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Config holds the settings of a Controller. The zero value holds pods, without any of the optional actions.
type Config struct {
	controllers.Settings
	// UnmountGrace is the time to wait for the unmount of the volumes of an ended pod if no fact proves it, which is an
	// estimate. 0 means the default of 30 seconds.
	UnmountGrace time.Duration
	// LeaseDuration is the time without a renewal of its Lease after which a kubelet counts as cut off. A kubelet that is
	// not cut off ends a pod without grace in the same time. It equals nodeLeaseDurationSeconds of the kubelet, and
	// node-monitor-grace-period of kube-controller-manager before Kubernetes 1.32. Default 40 seconds, which is also the
	// minimum, because a shorter time releases running pods. A test with its own Clock may set any value.
	LeaseDuration time.Duration
	// DeleteOrphans deletes held pods whose Node no longer exists, in place of the pod garbage collector of
	// kube-controller-manager. Default off.
	DeleteOrphans bool
	// VolumeLocks prevents the attachment of volumes to other nodes while a held pod is terminating on a node that is not
	// Ready, or its unmount is overdue. It needs the kind VolumeLock and the policy that reads it
	// (deploy/manifests/pod-safety-*.yaml). Default off, which removes all VolumeLocks, as nothing else would end them.
	VolumeLocks bool
	// Fences accepts NodeFences in force as evidence for the release of pods, and lifts the locks of volumes that a fence
	// keeps from a node. It needs the kind NodeFence (deploy/manifests/node-fencing-crd.yaml) and a program that carries
	// fences out. Default off.
	Fences bool
	// WatchFences has the wait for an unmount last while a NodeFence may keep the node from volumes, although no fence is
	// evidence. It needs the kind NodeFence, and Fences includes it. Default off.
	WatchFences bool
	// NodeCondition sets the condition NodeUnreachable on pods, and removes it when the node is back. Default off,
	// which removes the condition from all pods.
	NodeCondition bool
}

func (c Config) withDefaults() Config {
	c.Settings = c.WithDefaults()
	c.LeaseDuration = cmp.Or(c.LeaseDuration, podsafety.LeaseDuration)
	if c.DryRun {
		c.VolumeLocks, c.NodeCondition = false, false // both only write
	}
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() podsafety.Rules {
	return podsafety.Rules{UnmountGrace: c.UnmountGrace, LeaseDuration: c.LeaseDuration, CollectOrphans: c.DeleteOrphans,
		DryRun: c.DryRun}
}

// Validate returns an error that names every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.UnmountGrace < 0, "unmount grace: %v is negative", c.UnmountGrace)
	wrong.If(c.LeaseDuration < 0 || c.Clock == nil && c.LeaseDuration != 0 && c.LeaseDuration < podsafety.LeaseDuration,
		"time until a kubelet counts as cut off: %v is less than %v", c.LeaseDuration, podsafety.LeaseDuration)
	return errors.Join(wrong.Err(), c.Settings.Validate())
}

// permissions returns the permissions that a Controller with this Config needs.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	var needed controller.Permissions
	const (
		nothing = "held pods are not observed, so terminating ones stay"
		claims  = "claims of generic ephemeral volumes are not observed, so no pod is released"
	)
	needed.AddUnsafe("", "pods", nothing, "list", "watch")
	needed.AddUnsafe("", "pods", "no held pod is released, because there is no evidence without a live read", "get")
	needed.AddUnsafe("", "persistentvolumeclaims", claims, "list", "watch")
	needed.AddUnsafe("", "nodes", nothing, "list", "watch")
	needed.Add("", "nodes", "no held pod is released because its node is gone or out of service", "get")
	needed.All = append(needed.All, permission.Permission{Group: "coordination.k8s.io", Resource: "leases",
		Namespace: v1.NamespaceNodeLease, Verb: "get", Without: "no held pod is released because its node is gone"})
	needed.AddUnsafe("", "namespaces", "namespaces that ask for pod safety are not observed", "list", "watch")
	const unshown = "nothing shows the unmount of the volumes of a held pod, so each is held for longer (UnmountGrace)"
	for _, policy := range []string{forcePolicy, evictPolicy} {
		needed.All = append(needed.All,
			permission.Permission{Group: admissionv1.GroupName, Resource: "validatingadmissionpolicies", Name: policy,
				Verb: "get", Without: unshown},
			permission.Permission{Group: admissionv1.GroupName, Resource: "validatingadmissionpolicybindings",
				Name: policy + enforced, Verb: "get", Without: unshown})
	}
	if c.Fences {
		needed.Add(v1alpha1.GroupVersion.Group, client.FenceResource, "held pods of nodes that are fenced stay", "get")
	}
	if c.Fences || c.WatchFences {
		needed.AddUnsafe(v1alpha1.GroupVersion.Group, client.FenceResource,
			"whether a fence hinders the unmount of volumes is not observed", "list", "watch")
	}
	c.addWrites(&needed)
	needed.AddEvents(c.Events, "only the log and the metrics show why a pod stays")
	return needed.All
}

// addWrites adds the permissions for writes, and for the reads that serve only them.
func (c Config) addWrites(needed *controller.Permissions) {
	if !c.DryRun {
		needed.Add("", "pods", "no pod is held that admission has not held, and no held pod is released", "patch")
		needed.Add("", "pods", "held pods whose node is gone or out of service stay", "delete")
		needed.Add("", "persistentvolumeclaims", "held pods do not keep the claims of their generic ephemeral volumes, and "+
			"claims that have the finalizer stay", "patch")
	}
	switch {
	case c.NodeCondition:
		needed.Add("", "pods/status", "pods do not show that their node is unreachable", "patch")
	case !c.DryRun: // conditions of an earlier process are removed
		needed.Add("", "pods/status", "pods keep the condition "+string(objects.NodeUnreachable)+" after their node is back",
			"patch")
	}
	const bound = "volumes stay bound to one node after the pod is gone"
	switch {
	case c.VolumeLocks:
		const unlocked = "volumes can be attached to another node while a held pod may write to them"
		needed.Add("", "persistentvolumeclaims", unlocked, "get")
		needed.Add("", "persistentvolumes", unlocked, "get")
		needed.Add(lockGroup, lockResource, unlocked, "list", "create", "update")
		needed.Add(lockGroup, lockResource, bound, "delete")
	case !c.DryRun: // locks of an earlier process are removed
		needed.Add(lockGroup, lockResource, bound, "list", "delete")
	}
}

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
	config = kube.Limited(config)
	clients, err := controller.Connect("create a controller for pod safety", config, cfg)
	if err != nil {
		return nil, err
	}
	locks, err := newLockClient(config)
	if err != nil {
		return nil, err
	}
	var fences *client.Client
	if cfg.Fences || cfg.WatchFences {
		if fences, err = client.New(config); err != nil {
			return nil, err
		}
	}
	c, err := newController(cfg, apiServer{clients, fences}, locks)
	if err != nil {
		return nil, err
	}
	c.Checker = permission.NewChecker(clients.Authorization, cfg.permissions())
	controller.Follow(c.Controller, c.observer.follow(clients, fences, cfg.Fences, cfg.Watches)...)
	return c, nil
}

// newController returns a Controller without caches.
func newController(cfg Config, cluster cluster, locks lockClient) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{Controller: controller.NewController("pod-safety"), cfg: cfg, cluster: cluster,
		volumeLocks: newVolumeLocks(locks), metrics: newMetrics()}
	c.recorder = events.NewRecorder(events.Config[podsafety.Reason]{Events: cfg.Events, Counter: c.metrics.reports})
	if err := c.register(cfg.Metrics); err != nil {
		return nil, err
	}
	// A replica that begins to lead then knows since when force deletions are refused.
	controller.Follow(c.Controller, controller.Polled("force policies", c.watchForcePolicy, func() bool { return true }))
	controller.Begin(c.Controller, c.orderStarts, c.begin, c.beginClaims)
	if !cfg.DryRun {
		controller.Begin(c.Controller, func(ctx context.Context) {
			controller.Repeat(ctx, cfg.Clock, sweepEvery, c.sweepLocks)
		})
	}
	c.pods = controller.QueueOf(c.Controller, cfg.Settings, "pod-safety", cfg.Workers, c.reconcile)
	c.claims = controller.QueueOf(c.Controller, cfg.Settings, "pod-safety-claims", cfg.Workers, c.settleClaim)
	c.lockings = controller.QueueOf(c.Controller, cfg.Settings, "pod-safety-volume-locks", cfg.Workers, c.lock)
	c.namespaces = controller.QueueOf(c.Controller, cfg.Settings, "pod-safety-namespaces", otherWorkers, c.hold)
	c.markings = controller.QueueOf(c.Controller, cfg.Settings, "pod-safety-nodes", otherWorkers, c.mark)
	c.observer = newObserver(cfg.rules(), cfg.NodeCondition, cfg.Clock, wake{pod: c.pods.Enqueue, claim: c.claims.Enqueue,
		namespace: c.namespaces.Enqueue, node: c.markings.Enqueue, forget: c.forget, working: c.Working})
	return c, nil
}

func (c *Controller) forget(p *pod) {
	c.recorder.Forget(p.uid)
	c.locks(p.node)
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
		c.markings.Enqueue(name)
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
