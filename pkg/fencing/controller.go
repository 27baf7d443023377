package fencing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing/agents"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Config holds the settings of a Controller. Its zero value is usable and takes the default of every field.
type Config struct {
	// Settings are those of every controller. Its Workers work on NodeFences.
	controllers.Settings
	// KeepReturned is the delay from the return of a node to the deletion of its NodeFence. 0 means the default of 1 hour.
	KeepReturned time.Duration
	// SilentAfter is the longest time that a running node takes to renew its Lease: nodeLeaseDurationSeconds of the
	// kubelet, and node-monitor-grace-period of kube-controller-manager before Kubernetes 1.32. Default 40 seconds, which
	// is also the minimum, because a shorter time mistakes running nodes for fenced ones and releases pods and volumes
	// that they still write to. A test with its own Clock may set any value.
	SilentAfter time.Duration
}

func (c Config) withDefaults() Config {
	c.Settings = c.WithDefaults()
	c.KeepReturned = cmp.Or(c.KeepReturned, fencing.DefaultKeepReturned)
	c.SilentAfter = cmp.Or(c.SilentAfter, fencing.SilentAfter)
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() fencing.Rules {
	return fencing.Rules{KeepReturned: c.KeepReturned, SilentAfter: c.SilentAfter, DryRun: c.DryRun}
}

// Validate returns an error that names every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.KeepReturned < 0, "time to keep NodeFences: %v is negative", c.KeepReturned)
	wrong.If(c.SilentAfter < 0 || c.Clock == nil && c.SilentAfter != 0 && c.SilentAfter < fencing.SilentAfter,
		"time until a node counts as silent: %v is less than %v", c.SilentAfter, fencing.SilentAfter)
	return errors.Join(wrong.Err(), c.Settings.Validate())
}

// permissions returns the permissions that a Controller with this Config needs. It excludes the permissions of agents,
// which depend on their kinds.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	var needed controller.Permissions
	const (
		unknown = "fences are not observed, so no node is fenced"
		unread  = "no node is fenced, and nothing is released, because that needs a live read"
		stuck   = "no node is fenced"
	)
	own := v1alpha1.GroupVersion.Group
	needed.AddUnsafe(own, client.FenceResource, unknown, "list", "watch", "get")
	needed.AddUnsafe(own, client.PolicyResource, "no node that is unreachable is fenced by a FencePolicy", "list", "watch",
		"get")
	needed.AddUnsafe("", "nodes", unknown, "list", "watch")
	needed.AddUnsafe("", "nodes", unread, "get")
	for _, verb := range []string{"get", "list"} {
		needed.All = append(needed.All, permission.Permission{Group: "coordination.k8s.io", Resource: "leases",
			Namespace: v1.NamespaceNodeLease, Verb: verb, Without: unread, Unsafe: true})
	}
	needed.AddUnsafe("", "pods", unread, "list")
	needed.AddUnsafe("storage.k8s.io", "volumeattachments", unread, "list")
	needed.Add("policy", "poddisruptionbudgets", "no node is fenced by a FencePolicy with budgetPatience", "list")
	needed.Add("", "namespaces", "no node is fenced by a FencePolicy with namespaceSelector", "get")
	if !c.DryRun {
		needed.Add(own, client.FenceResource, stuck, "create", "patch", "delete")
		needed.Add(own, client.FenceResource+"/status", stuck, "update")
		needed.Add(own, client.PolicyResource+"/status", "the status of FencePolicies is not updated", "update")
		needed.Add("", "nodes",
			"pods of a fenced node are not replaced, its volumes not detached, and new pods not kept away", "patch")
	}
	needed.AddEvents(c.Events, "only the log and the metrics show the progress of fences")
	return needed.All
}

// Controller fences the nodes of a cluster; [controller.Controller] says how it is run. Its methods are safe for
// concurrent use.
type Controller struct {
	*controller.Controller
	permission.Checker
	cfg       Config
	cluster   cluster
	runner    runner
	discovery discovery.DiscoveryInterface
	observer  *observer
	view      *view
	// reports are on NodeFences, policyReports on FencePolicies, and judgements on nodes that a FencePolicy judges.
	// Separate recorders give each kind its own waiting metric.
	reports, policyReports, judgements *events.Recorder[fencing.Reason]
	metrics                            metrics

	fences, policyQueue *controller.Queue[string]
}

// New returns a Controller for the cluster of config, which is copied, and starts nothing: see Run. A QPS of 0 in
// config means that only the number of workers limits the calls.
func New(config *rest.Config, cfg Config) (*Controller, error) {
	clients, err := newClients(config, cfg)
	if err != nil {
		return nil, err
	}
	server := apiServer{clients, &attachments{clock: settings.Clock(cfg.Clock)}}
	c, err := newController(cfg, server, clients.runner)
	if err != nil {
		return nil, err
	}
	c.discovery = clients.all.Discovery()
	c.Checker = permission.NewChecker(clients.Authorization, cfg.permissions())
	controller.Follow(c.Controller, c.observer.follow(clients, cfg.Watches)...)
	return c, nil
}

// newController returns a Controller without caches.
func newController(cfg Config, cluster cluster, runner runner) (*Controller, error) {
	cfg = cfg.withDefaults()
	c := &Controller{Controller: controller.NewController("node-fencing"), cfg: cfg, cluster: cluster, runner: runner,
		metrics: newMetrics(), view: newView(cfg.SilentAfter)}
	reports := events.Config[fencing.Reason]{Events: cfg.Events, Counter: c.metrics.reports}
	c.reports, c.policyReports, c.judgements = events.NewRecorder(reports), events.NewRecorder(reports),
		events.NewRecorder(reports)
	if err := c.register(cfg.Metrics); err != nil {
		return nil, err
	}
	controller.Begin(c.Controller, c.begin, c.pollLeases)
	c.fences = controller.QueueOf(c.Controller, cfg.Settings, "node-fencing", cfg.Workers, c.reconcile)
	c.policyQueue = controller.QueueOf(c.Controller, cfg.Settings, "node-fencing-policies", 1, c.reconcilePolicy)
	c.observer = newObserver(cfg.rules(), wake{fence: c.fences.Enqueue, policy: c.policyQueue.Enqueue,
		forgetFence: c.reports.Forget, forgetPolicy: c.forgetPolicy, reached: c.view.reached})
	return c, nil
}

func (c *Controller) forgetPolicy(policy types.UID) {
	c.policyReports.Forget(policy)
	c.observer.forgetJudged(policy, nil, c.judgements.Forget)
}

// Installed returns ErrNotInstalled if the API server lacks the kinds of the controller. Any other error means that
// their presence is unknown.
func (c *Controller) Installed(ctx context.Context) error { return installed(ctx, c.discovery) }

// begin enqueues every object in the caches that may need work.
func (c *Controller) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Fencing nodes", "workers", c.cfg.Workers, "dryRun", c.cfg.DryRun, "keepReturned",
		c.cfg.KeepReturned)
	fences, policies := c.observer.first()
	c.fences.AddAll(ctx, fences)
	c.policyQueue.AddAll(ctx, policies)
}

type clients struct {
	kube.Clients
	// all serves every API group of Kubernetes, for agents and budgets.
	all    kubernetes.Interface
	own    *client.Client
	runner runner
}

func newClients(config *rest.Config, cfg Config) (c clients, err error) {
	config = kube.Limited(config)
	if c.Clients, err = controller.Connect("create a controller that fences nodes", config, cfg); err != nil {
		return c, err
	}
	if c.own, err = client.New(config); err != nil {
		return c, err
	}
	config = kube.ConfigOf(config)
	if c.all, err = kubernetes.NewForConfig(config); err != nil {
		return c, fmt.Errorf("create clients for agents: %w", err)
	}
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return c, fmt.Errorf("create a client for agents that are custom resources: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.all.Discovery()))
	c.runner = agents.NewRunner(c.all, custom, mapper)
	return c, nil
}

// ErrNotInstalled means that the API server does not have the kinds NodeFence and FencePolicy.
var ErrNotInstalled = errors.New("the API server does not have the kinds NodeFence and FencePolicy of " +
	"csi-reclaimer.io/v1alpha1: kubectl apply -f deploy/manifests/node-fencing-crd.yaml, or leave out node-fencing of " +
	"--controllers")

// installed returns ErrNotInstalled if the API server definitely lacks the kinds, and other errors if that is unknown.
func installed(ctx context.Context, of discovery.DiscoveryInterface) error {
	list, err := of.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return ErrNotInstalled
	case err != nil:
		return fmt.Errorf("find the kinds of node-fencing: %w", err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	for _, resource := range []string{client.FenceResource, client.PolicyResource} {
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }) {
			return ErrNotInstalled
		}
	}
	return nil
}
