package fencing

import (
	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

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
