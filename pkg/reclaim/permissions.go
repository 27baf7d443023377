package reclaim

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Rights returns what a Reclaimer with this Config needs to be allowed. Secrets are not
// among them: which ones are needed is known only when a volume is deleted.
func (c Config) Permissions() []access.Permission {
	c = c.withDefaults()
	const storage = "storage.k8s.io"
	pv := func(verb, without string, unsafe bool) access.Permission {
		return access.Permission{Resource: "persistentvolumes", Verb: verb, Without: without, Unsafe: unsafe}
	}
	rights := []access.Permission{
		pv("list", "nothing is known of PVs", true),
		pv("watch", "nothing is known of PVs", true),
	}
	deletes := c.Role != volume.RoleObserver || *c.ReclaimUnprotected
	if c.Role != volume.RoleObserver {
		rights = append(rights, pv("get", "no volume is deleted, for nobody can tell whether its PV still says so", true))
		if !c.DryRun {
			rights = append(rights, pv("patch", "no PV is protected, so a PV that is deleted before its claim leaks its volume, and those that are protected already are never let go", false))
		}
	}
	if c.Role == volume.RoleOwner && !c.DryRun {
		rights = append(rights, pv("delete", "PVs stay when their volume is deleted", false))
	}
	if deletes {
		rights = append(rights,
			access.Permission{Resource: "persistentvolumeclaims", Verb: "get", Without: "no volume is deleted, for nobody can tell whether its claim is gone", Unsafe: true},
			access.Permission{Group: storage, Resource: "storageclasses", Verb: "get", Without: "volumes of PVs without the annotations that name their Secret are not deleted"})
	}
	if deletes && c.Node != nil {
		rights = append(rights, access.Permission{Resource: "nodes", Verb: "list", Without: "no volume is deleted, for nobody can tell whether another node answers for it too", Unsafe: true})
	}
	if deletes && !c.NeverAttached {
		without := "no volume is deleted, for nobody can tell whether one is attached"
		rights = append(rights,
			access.Permission{Group: storage, Resource: "volumeattachments", Verb: "list", Without: without, Unsafe: true},
			access.Permission{Group: storage, Resource: "volumeattachments", Verb: "watch", Without: without, Unsafe: true})
	}
	if c.Brake.Deletions > 0 && !c.DryRun {
		for _, verb := range []string{"get", "patch"} {
			rights = append(rights, access.Permission{Group: "coordination.k8s.io", Resource: "leases", Verb: verb, Namespace: c.Brake.Lease.Namespace,
				Without: "the brake does not survive a restart, and is not let go", Unsafe: verb == "get"})
		}
	}
	if _, none := c.Events.(events.NoEvents); !none {
		for _, verb := range []string{"create", "patch"} {
			rights = append(rights, access.Permission{Resource: "events", Verb: verb, Without: "what keeps a PV is told in the log and the metrics only"})
		}
	}
	return rights
}

// Missing returns those of the rights of its Config that the API server does not grant; see the
// function of the same name.
func (r *Reclaimer) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	return access.Missing(ctx, r.authorization, r.cfg.Permissions())
}
