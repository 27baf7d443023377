package leaks

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
)

// Permissions returns what a Controller with these settings needs to be allowed.
func (a *Controller) Permissions() []access.Permission {
	const nothing = "no leak check can be completed, so no leak is ever suspected"
	needed := []access.Permission{
		{Resource: "persistentvolumes", Verb: "list", Without: nothing},
		{Resource: "persistentvolumeclaims", Verb: "list", Without: nothing},
		{Group: "coordination.k8s.io", Resource: "leases", Verb: "list", Without: nothing},
	}
	if a.cfg.Snapshots {
		needed = append(needed, access.Permission{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotcontents",
			Verb: "list", Without: nothing})
	}
	return needed
}

// MissingPermissions returns the permissions that the API server does not grant; see [access.Missing].
func (a *Controller) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	return access.Missing(ctx, a.authorization, a.Permissions())
}
