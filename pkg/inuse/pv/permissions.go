package pv

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// Permissions returns what a Protector with these settings needs to be allowed.
func Permissions(c inuse.Config) []access.Permission { return c.Permissions("persistentvolumes") }

// MissingPermissions returns the permissions that the API server does not grant; see [access.Missing].
func (p *Protector) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	return access.Missing(ctx, p.authorization, p.permissions)
}
