package admission

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// permissions returns the permissions that a LiveReader needs.
func permissions() []permission.Permission {
	return []permission.Permission{
		{Resource: "pods", Verb: "get", Without: "pods are bound although one of their claims is terminating"},
		{Resource: "persistentvolumeclaims", Verb: "get",
			Without: "pods are bound although one of their claims is terminating"},
	}
}

// MissingPermissions returns the permissions that the API server does not grant; see [permission.Missing].
func (a *LiveReader) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	return permission.Missing(ctx, a.clients.Authorization, permissions())
}
