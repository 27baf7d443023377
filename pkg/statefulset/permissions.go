package statefulset

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// permissions returns the permissions that a Controller with this Config needs.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	var permissions []permission.Permission
	add := func(group, resource, without string, unsafe bool, verbs ...string) {
		for _, verb := range verbs {
			permissions = append(permissions, permission.Permission{
				Group: group, Resource: resource, Verb: verb, Without: without, Unsafe: unsafe})
		}
	}
	const (
		unknown = "claims of StatefulSets are not observed, so none is deleted"
		unread  = "no claim is deleted, because that needs a live read"
		kept    = "claims that the policy of their StatefulSet deletes stay"
	)
	for _, of := range []struct{ group, resource string }{
		{"", "persistentvolumeclaims"}, {"", "pods"}, {"apps", "statefulsets"},
	} {
		add(of.group, of.resource, unknown, true, "list", "watch")
		add(of.group, of.resource, unread, true, "get")
	}
	if !c.DryRun {
		add("", "persistentvolumeclaims", kept, false, "patch", "delete")
		add("", "pods", "pods stay that were created with a claim that is being deleted, and lose its data when they end",
			false, "delete")
		add("apps", "statefulsets", "StatefulSets that were scaled up while a claim was being deleted may stay without a pod",
			false, "patch")
	}
	if _, none := c.Events.(events.Discard); !none {
		add("", "events", "only the log and the metrics show why a claim is deleted or stays", false,
			"create", "patch")
	}
	return permissions
}
