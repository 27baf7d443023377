package leaks

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
)

// Rights returns what an Auditor with these settings needs to be allowed.
func (a *Auditor) Permissions() []access.Permission {
	const nothing = "no audit can be completed, so no leak is ever suspected"
	rights := []access.Permission{
		{Resource: "persistentvolumes", Verb: "list", Without: nothing},
		{Resource: "persistentvolumeclaims", Verb: "list", Without: nothing},
		{Group: "coordination.k8s.io", Resource: "leases", Verb: "list", Without: nothing},
	}
	if a.cfg.Snapshots {
		rights = append(rights, access.Permission{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotcontents", Verb: "list", Without: nothing})
	}
	return rights
}

// Missing returns those of the rights that the API server does not grant. An error means that it could not
// be found out.
func (a *Auditor) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	return access.Missing(ctx, a.authorization, a.Permissions())
}
