package pv

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Permissions returns the permissions that a Protector with these settings needs.
func Permissions(c inuse.Config) []permission.Permission { return c.Permissions("persistentvolumes") }
