package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// permissions returns the permissions that a Controller with this Config needs.
func (c Config) permissions() []permission.Permission {
	c = c.withDefaults()
	pv := func(verb, without string, unsafe bool) permission.Permission {
		return permission.Permission{Resource: "persistentvolumes", Verb: verb, Without: without, Unsafe: unsafe}
	}
	permissions := []permission.Permission{
		pv("list", "in-tree PVs are not observed", true),
		pv("watch", "in-tree PVs are not observed", true),
		pv("get", "no in-tree volume is deleted, because its PV cannot be read live", true),
		{Resource: "persistentvolumeclaims", Verb: "get",
			Without: "no in-tree volume is deleted, because it is not known whether its claim is gone", Unsafe: true},
		{Group: "storage.k8s.io", Resource: "volumeattachments", Verb: "list",
			Without: "no in-tree volume is deleted, because it is not known whether one is attached", Unsafe: true},
	}
	if !c.DryRun {
		permissions = append(permissions,
			pv("patch", "in-tree PVs are not protected, so deletion before the claim leaks the volume, and protected PVs keep "+
				"the finalizer", false),
			pv("create", "in-tree PVs that are deleted before their claim stay, and their volumes too", false),
			pv("delete", "twins of in-tree PVs whose volume is to be kept stay", false))
	}
	if _, none := c.Events.(events.Discard); !none {
		for _, verb := range []string{"create", "patch"} {
			permissions = append(permissions, permission.Permission{Resource: "events", Verb: verb,
				Without: "only the log and the metrics show why an in-tree PV stays"})
		}
	}
	return permissions
}
