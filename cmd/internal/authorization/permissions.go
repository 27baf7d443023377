package authorization

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
)

// Permissions returns what a Filter needs.
func Permissions() []access.Permission {
	const without = "every request that needs a token is answered with 503"
	return []access.Permission{
		{Group: authenticationv1.GroupName, Resource: "tokenreviews", Verb: "create", Without: without},
		{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews", Verb: "create", Without: without},
	}
}

// MissingPermissions returns the permissions that the API server does not grant; see [access.Missing].
func (f *Filter) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	return access.Missing(ctx, f.own, Permissions())
}
