package singlenode

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// permissions returns the permissions that a Controller with this Config needs.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	var permissions []permission.Permission
	add := func(group, resource, without string, unsafe bool, verbs ...string) {
		for _, verb := range verbs {
			permissions = append(permissions, permission.Permission{Group: group, Resource: resource, Verb: verb,
				Without: without, Unsafe: unsafe})
		}
	}
	const (
		nothing  = "locks of claims are not observed, so pods that wait for one are not scheduled"
		noLock   = "no claim gets a lock, so pods that wait for one are not scheduled"
		notFreed = "no lock of a claim is freed, so pods that wait for one are not scheduled"
	)
	add("", "pods", nothing, true, "list", "watch")
	add("", "persistentvolumeclaims", nothing, true, "list", "watch")
	add("", "namespaces", "namespaces that ask for locks of claims are not observed", true, "list", "watch")
	add("", "persistentvolumes", nothing, true, "list", "watch")
	add("storage.k8s.io", "storageclasses", nothing, true, "list", "watch")
	add("", "nodes", nothing, true, "list", "watch")
	add("", "pods", notFreed, true, "get")
	add("", "persistentvolumeclaims", noLock, true, "get")
	const notAsked = "pods whose claims need no lock keep their scheduling gate"
	add("", "persistentvolumes", notAsked, false, "get")
	add("storage.k8s.io", "storageclasses", notAsked, false, "get")
	add("", "namespaces", notAsked, false, "get")
	if c.Fences {
		const unfenced = "locks of pods on nodes that a fence keeps from the volume are not freed"
		add(v1alpha1.GroupVersion.Group, client.FenceResource, unfenced, true, "list", "watch")
		add(v1alpha1.GroupVersion.Group, client.FenceResource, unfenced, false, "get")
		add("", "nodes", unfenced, false, "get")
	}
	if !c.DryRun {
		add("", "pods", "no scheduling gate is removed, so pods with claims are not scheduled", false, "patch")
		add("", "persistentvolumeclaims", noLock, false, "patch")
	}
	if _, none := c.Events.(events.Discard); !none {
		add("", "events", "only the log and the metrics show why a pod waits", false, "create", "patch")
	}
	return permissions
}
