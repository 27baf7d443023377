package fencing

import (
	"cmp"
	"errors"
	"time"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
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
