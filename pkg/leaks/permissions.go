package leaks

import "github.com/csi-reclaimer/csi-reclaimer/pkg/permission"

// Permissions returns the permissions that the Controller needs with its settings.
func (a *Controller) Permissions() []permission.Permission {
	const nothing = "no leak check can be completed, so no leak is ever suspected"
	needed := []permission.Permission{
		{Resource: "persistentvolumes", Verb: "list", Without: nothing},
		{Resource: "persistentvolumeclaims", Verb: "list", Without: nothing},
		{Group: "storage.k8s.io", Resource: "volumeattachments", Verb: "list", Without: nothing},
		{Group: "coordination.k8s.io", Resource: "leases", Verb: "list", Without: nothing},
	}
	if a.cfg.Snapshots {
		needed = append(needed, permission.Permission{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotcontents",
			Verb: "list", Without: nothing})
	}
	return needed
}
