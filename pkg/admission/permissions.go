package admission

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
)

// Permissions returns the permissions that a LiveReader needs.
func Permissions() []access.Permission {
	return []access.Permission{
		{Resource: "pods", Verb: "get", Without: "pods are bound although one of their claims is terminating"},
		{Resource: "persistentvolumeclaims", Verb: "get",
			Without: "pods are bound although one of their claims is terminating"},
	}
}

// MissingPermissions returns the permissions that the API server does not grant; see [access.Missing].
func (a *LiveReader) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	return access.Missing(ctx, a.clients.Authorization, Permissions())
}
