package capacity

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Permissions returns the permissions that the Controller needs with its settings.
func (c *Controller) Permissions() []permission.Permission {
	const storage, nothing = "storage.k8s.io", "no capacity is published"
	here := func(group, resource, verb, without string) permission.Permission {
		return permission.Permission{
			Group: group, Resource: resource, Verb: verb, Namespace: c.cfg.Namespace, Without: without}
	}
	rights := []permission.Permission{
		{Group: storage, Resource: "storageclasses", Verb: "list", Without: nothing},
		{Group: storage, Resource: "storageclasses", Verb: "watch", Without: nothing},
		here(storage, "csistoragecapacities", "list", nothing),
		here(storage, "csistoragecapacities", "watch", nothing),
		here(storage, "csistoragecapacities", "create", nothing),
		here(storage, "csistoragecapacities", "patch",
			"the published capacity becomes outdated, and the scheduler uses it"),
		here(storage, "csistoragecapacities", "delete", "the capacity of classes and segments that are gone stays"),
	}
	if c.nodes != nil {
		rights = append(rights, c.nodes.Permissions(nothing)...)
	}
	const unowned = "no capacity is published, because its owner is not known; --capacity-ownerref-level=-1 publishes " +
		"it without an owner"
	if c.cfg.Owner != nil {
		rights = append(rights, here("", "pods", "get", unowned))
	}
	if c.cfg.Owner != nil && c.cfg.Owner.Level > 1 {
		rights = append(rights, here("apps", "replicasets", "get", unowned))
	}
	return rights
}

// MissingPermissions returns the permissions that the API server does not grant. An error means that the review
// failed and the permissions are unknown.
func (c *Controller) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	return permission.Missing(ctx, c.authorization, c.Permissions())
}
