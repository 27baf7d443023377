package admission

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
)

// Rights returns what an APIServer needs to be allowed.
func Permissions() []access.Permission {
	return []access.Permission{
		{Resource: "pods", Verb: "get", Without: "pods are bound although a claim of theirs is being deleted"},
		{Resource: "persistentvolumeclaims", Verb: "get", Without: "pods are put on nodes although a claim of theirs is being deleted"},
	}
}

// MissingPermissions returns the permissions that the API server does not grant; see [access.Missing].
func (a *APIServer) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	return access.Missing(ctx, a.clients.Authorization, Permissions())
}
