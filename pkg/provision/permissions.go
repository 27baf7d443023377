package provision

import (
	"context"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Permissions returns the permissions that a Controller with these settings needs. They do not include Secrets, whose
// names are known only when a volume is created. Without a permission the Controller does less, but stays safe.
func (p *Controller) Permissions() []permission.Permission {
	const storage = "storage.k8s.io"
	core := func(resource, verb, without string) permission.Permission {
		return permission.Permission{Resource: resource, Verb: verb, Without: without}
	}
	volumes := []permission.Permission{
		core("persistentvolumes", "list", "no claim gets a volume"),
		core("persistentvolumes", "watch", "no claim gets a volume"),
		core("persistentvolumes", "get", "a volume whose PV was created and not confirmed stays unsettled"),
		core("persistentvolumes", "create", "no claim gets a volume, and no volume that is in flight its PV"),
	}
	if p.cfg.FinishOnly {
		return volumes
	}
	const nothing, classless = "no claim gets a volume", "no claim gets a volume, because its class is not known"
	rights := []permission.Permission{
		core("persistentvolumeclaims", "list", nothing),
		core("persistentvolumeclaims", "watch", nothing),
		core("persistentvolumeclaims", "get",
			"a claim whose volume was asked for before, or that was there before this process led, gets no volume"),
		core("persistentvolumeclaims", "patch",
			"no claim is cloned, for without update, too, its source cannot be protected"),
		core("persistentvolumeclaims", "update",
			"a claim is not given another node where the selected one cannot have its volume"),
		{Group: storage, Resource: "storageclasses", Verb: "list", Without: classless},
		{Group: storage, Resource: "storageclasses", Verb: "watch", Without: classless},
	}
	rights = append(rights, volumes...)
	if p.cfg.Local == nil { // a node knows itself
		rights = append(rights, core("nodes", "get", "no claim gets a volume for which a node was selected"))
	}
	for _, verb := range []string{"create", "patch"} {
		rights = append(rights, core("events", verb, "why a claim waits is only in the log"))
	}
	if w, ok := p.requests.(Watcher); ok {
		rights = append(rights, w.Permissions()...)
	}
	return rights
}

// MissingPermissions returns the permissions that the API server does not grant; see [permission.Missing]. The
// permission to patch claims is not missing if claims may be updated.
func (p *Controller) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	missing, err := permission.Missing(ctx, p.client.AuthorizationV1(), p.Permissions())
	if !slices.ContainsFunc(missing, of("update")) {
		missing = slices.DeleteFunc(missing, of("patch"))
	}
	return missing, err
}

// of returns a predicate for the permission to apply this verb to claims.
func of(verb string) func(permission.Permission) bool {
	return func(p permission.Permission) bool { return p.Resource == "persistentvolumeclaims" && p.Verb == verb }
}
