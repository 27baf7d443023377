package authorization

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Permissions returns the permissions that a Filter needs.
func Permissions() []permission.Permission {
	const without = "every request that needs a token is answered with 503"
	return []permission.Permission{
		{Group: authenticationv1.GroupName, Resource: "tokenreviews", Verb: "create", Without: without},
		{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews", Verb: "create", Without: without},
	}
}
