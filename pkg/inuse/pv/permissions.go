package pv

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Permissions returns the permissions that a Protector with these settings needs.
func Permissions(c inuse.Config) []permission.Permission { return c.Permissions("persistentvolumes") }

// MissingPermissions returns the permissions that the API server does not grant; see [permission.Missing].
func (p *Protector) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	return permission.Missing(ctx, p.authorization, p.permissions)
}
