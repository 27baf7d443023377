package snapshot

import "github.com/csi-reclaimer/csi-reclaimer/pkg/permission"

// Permission returns the permission for a verb on a resource of the snapshot API. without describes the effect of its
// absence.
func Permission(resource, verb, without string) permission.Permission {
	return permission.Permission{Group: "snapshot.storage.k8s.io", Resource: resource, Verb: verb, Without: without}
}
