package intree

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
)

// Rights returns what a Controller with this Config needs to be allowed.
func (c Config) Permissions() []access.Permission {
	c = c.withDefaults()
	pv := func(verb, without string, unsafe bool) access.Permission {
		return access.Permission{Resource: "persistentvolumes", Verb: verb, Without: without, Unsafe: unsafe}
	}
	rights := []access.Permission{
		pv("list", "nothing is known of in-tree PVs", true),
		pv("watch", "nothing is known of in-tree PVs", true),
		pv("get", "no in-tree volume is deleted, for nobody can tell whether its PV still says so", true),
		{Resource: "persistentvolumeclaims", Verb: "get", Without: "no in-tree volume is deleted, for nobody can tell whether its claim is gone", Unsafe: true},
		{Group: "storage.k8s.io", Resource: "volumeattachments", Verb: "list", Without: "no in-tree volume is deleted, for nobody can tell whether one is attached", Unsafe: true},
	}
	if !c.DryRun {
		rights = append(rights,
			pv("patch", "no in-tree PV is protected, so one that is deleted before its claim leaks its volume, and those that are protected already are never let go", false),
			pv("create", "in-tree PVs that are deleted before their claim stay, and their volumes too", false),
			pv("delete", "twins of in-tree PVs whose volume is to be kept stay", false))
	}
	if _, none := c.Events.(events.NoEvents); !none {
		for _, verb := range []string{"create", "patch"} {
			rights = append(rights, access.Permission{Resource: "events", Verb: verb, Without: "what keeps an in-tree PV is told in the log and the metrics only"})
		}
	}
	return rights
}

// MissingPermissions returns the permissions that the API server does not grant; see [access.Missing].
func (c *Controller) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	return access.Missing(ctx, c.authorization, c.cfg.Permissions())
}
