package fencing

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Config holds the settings of a Controller. Its zero value is usable and takes the default of every field.
type Config struct {
	// KeepReturned is the delay from the return of a node to the deletion of its NodeFence. 0 means the default of 1 hour.
	KeepReturned time.Duration
	// SilentAfter is the longest time that a running node takes to renew its Lease: nodeLeaseDurationSeconds of the
	// kubelet, and node-monitor-grace-period of kube-controller-manager before Kubernetes 1.32. Default 40 seconds, which
	// is also the minimum, because a shorter time mistakes running nodes for fenced ones and releases pods and volumes
	// that they still write to. A test with its own Clock may set any value.
	SilentAfter time.Duration
	// DryRun decides and reports everything, and writes nothing.
	DryRun bool
	// Workers is the number of NodeFences that are worked on concurrently, which also bounds the load on the API server.
	// Default 10.
	Workers int
	// RetryStart and RetryMax bound the delay after a failed call, which doubles each time. Default 1 second and 5
	// minutes.
	RetryStart, RetryMax time.Duration
	// Events records actions on the NodeFence, its Node and the FencePolicy. It should have its own client and rate limit.
	// Default none.
	Events record.EventRecorder
	// Metrics is where the metrics of the package are registered. Default none.
	Metrics prometheus.Registerer
	// Watches are shared with the other controllers of a program of this module. Default none: the watches are its own.
	Watches *kube.Watches
	// Clock is the real clock unless a test replaces it.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	c.KeepReturned = cmp.Or(c.KeepReturned, fencing.DefaultKeepReturned)
	c.SilentAfter = cmp.Or(c.SilentAfter, fencing.SilentAfter)
	c.Workers = cmp.Or(c.Workers, 10)
	c.RetryStart, c.RetryMax = settings.Retries(c.RetryStart, c.RetryMax)
	c.Events = settings.Events(c.Events, c.DryRun)
	c.Clock = settings.Clock(c.Clock)
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() fencing.Rules {
	return fencing.Rules{KeepReturned: c.KeepReturned, SilentAfter: c.SilentAfter, DryRun: c.DryRun}
}

func (c Config) retries() controller.Backoff {
	return controller.Backoff{First: c.RetryStart, Max: c.RetryMax}
}

// Validate returns an error that names every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.KeepReturned < 0, "time to keep NodeFences: %v is negative", c.KeepReturned)
	wrong.If(c.SilentAfter < 0 || c.Clock == nil && c.SilentAfter != 0 && c.SilentAfter < fencing.SilentAfter,
		"time until a node counts as silent: %v is less than %v", c.SilentAfter, fencing.SilentAfter)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}

// permissions returns the permissions that a Controller with this Config needs. It excludes the permissions of agents,
// which depend on their kinds.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	var permissions []permission.Permission
	add := func(group, resource, namespace, without string, unsafe bool, verbs ...string) {
		for _, verb := range verbs {
			permissions = append(permissions, permission.Permission{Group: group, Resource: resource, Namespace: namespace,
				Verb: verb, Without: without, Unsafe: unsafe})
		}
	}
	const (
		unknown = "fences are not observed, so no node is fenced"
		unread  = "no node is fenced, and nothing is released, because that needs a live read"
		stuck   = "no node is fenced"
	)
	own := v1alpha1.GroupVersion.Group
	add(own, client.FenceResource, "", unknown, true, "list", "watch", "get")
	add(own, client.PolicyResource, "", "no node that is unreachable is fenced by a FencePolicy", true, "list", "watch",
		"get")
	add("", "nodes", "", unknown, true, "list", "watch")
	add("", "nodes", "", unread, true, "get")
	add("coordination.k8s.io", "leases", v1.NamespaceNodeLease, unread, true, "get", "list")
	add("", "pods", "", unread, true, "list")
	add("storage.k8s.io", "volumeattachments", "", unread, true, "list")
	add("policy", "poddisruptionbudgets", "", "no node is fenced by a FencePolicy with budgetPatience", false, "list")
	add("", "namespaces", "", "no node is fenced by a FencePolicy with namespaceSelector", false, "get")
	if !c.DryRun {
		add(own, client.FenceResource, "", stuck, false, "create", "patch", "delete")
		add(own, client.FenceResource+"/status", "", stuck, false, "update")
		add(own, client.PolicyResource+"/status", "", "the status of FencePolicies is not updated", false, "update")
		add("", "nodes", "", "pods of a fenced node are not replaced, its volumes not detached, and new pods not kept away",
			false, "patch")
	}
	if _, none := c.Events.(events.Discard); !none {
		add("", "events", "", "only the log and the metrics show the progress of fences", false, "create",
			"patch")
	}
	return permissions
}
