package pvc

import "github.com/csi-reclaimer/csi-reclaimer/pkg/permission"

// Permissions returns the permissions that a Protector with these settings needs.
func (c Config) Permissions() []permission.Permission {
	rights := c.Config.Permissions("persistentvolumeclaims")
	if len(rights) == 0 {
		return nil // off
	}
	const without = "no claim loses its finalizer, because a pod may use it"
	return append(rights,
		permission.Permission{Resource: "pods", Verb: "list", Without: without, Unsafe: true},
		permission.Permission{Resource: "pods", Verb: "watch", Without: without, Unsafe: true})
}
