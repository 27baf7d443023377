package snapshot

import "github.com/csi-reclaimer/csi-reclaimer/pkg/access"

// Permission returns the permission for a verb on a resource of the snapshot API. without says what is not done where
// it is missing.
func Permission(resource, verb, without string) access.Permission {
	return access.Permission{Group: "snapshot.storage.k8s.io", Resource: resource, Verb: verb, Without: without}
}
