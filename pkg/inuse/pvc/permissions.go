package pvc

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Permissions returns the permissions that a Protector with these settings needs.
func (c Config) Permissions() []permission.Permission {
	needed := controller.Permissions{All: c.Config.Permissions("persistentvolumeclaims")}
	if len(needed.All) > 0 { // it is not off
		needed.AddUnsafe("", "pods", "no claim loses its finalizer, because a pod may use it", "list", "watch")
	}
	return needed.All
}
