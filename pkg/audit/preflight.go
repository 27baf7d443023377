package audit

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Rights returns what an Auditor with these settings needs to be allowed.
func (a *Auditor) Rights() []reclaim.Right {
	const nothing = "no audit can be completed, so no leak is ever suspected"
	rights := []reclaim.Right{
		{Resource: "persistentvolumes", Verb: "list", Without: nothing},
		{Resource: "persistentvolumeclaims", Verb: "list", Without: nothing},
		{Group: "coordination.k8s.io", Resource: "leases", Verb: "list", Without: nothing},
	}
	if a.cfg.Snapshots {
		rights = append(rights, reclaim.Right{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotcontents", Verb: "list", Without: nothing})
	}
	return rights
}

// Missing returns those of the rights that the API server does not grant. An error means that it could not
// be found out.
func (a *Auditor) Missing(ctx context.Context) ([]reclaim.Right, error) {
	return reclaim.Missing(ctx, a.authorization, a.Rights())
}
