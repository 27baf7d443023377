package reclaim

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/board"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// Right is something that a controller asks the API server to be allowed to do.
type Right struct {
	// Group, Resource and Verb are as in an RBAC rule; an empty Group is the core one.
	Group, Resource, Verb string
	// Namespace is empty for the whole cluster, Name for all objects.
	Namespace, Name string
	// Without says what does not work without it.
	Without string
	// Unsafe: without it no deletion can be proven to be safe, so none is made.
	Unsafe bool
}

// String names the right, what goes without it, and the rule that grants it, in one line.
func (r Right) String() string {
	kind := "ClusterRole"
	if r.Namespace != "" {
		kind = "Role in namespace " + r.Namespace
	}
	var named string
	if r.Name != "" {
		named = fmt.Sprintf(", resourceNames: [%q]", r.Name)
	}
	return fmt.Sprintf(`may not %s %s: %s. Add to the %s: {apiGroups: [%q], resources: [%q]%s, verbs: [%q]}`,
		r.Verb, r.Resource, r.Without, kind, r.Group, r.Resource, named, r.Verb)
}

// Rights returns what a Reclaimer with this Config needs to be allowed. Secrets are not
// among them: which ones are needed is known only when a volume is deleted.
func (c Config) Rights() []Right {
	c = c.withDefaults()
	const storage = "storage.k8s.io"
	pv := func(verb, without string, unsafe bool) Right {
		return Right{Resource: "persistentvolumes", Verb: verb, Without: without, Unsafe: unsafe}
	}
	rights := []Right{
		pv("list", "nothing is known of PVs", true),
		pv("watch", "nothing is known of PVs", true),
	}
	deletes := c.Role != RoleObserver || *c.ReclaimUnprotected
	if c.Role != RoleObserver {
		rights = append(rights, pv("get", "no volume is deleted, for nobody can tell whether its PV still says so", true))
		if !c.DryRun {
			rights = append(rights, pv("patch", "no PV is protected, so a PV that is deleted before its claim leaks its volume, and those that are protected already are never let go", false))
		}
	}
	if c.Role == RoleOwner && !c.DryRun {
		rights = append(rights, pv("delete", "PVs stay when their volume is deleted", false))
	}
	if deletes {
		rights = append(rights,
			Right{Resource: "persistentvolumeclaims", Verb: "get", Without: "no volume is deleted, for nobody can tell whether its claim is gone", Unsafe: true},
			Right{Group: storage, Resource: "storageclasses", Verb: "get", Without: "volumes of PVs without the annotations that name their Secret are not deleted"})
	}
	if deletes && c.Node != nil {
		rights = append(rights, Right{Resource: "nodes", Verb: "list", Without: "no volume is deleted, for nobody can tell whether another node answers for it too", Unsafe: true})
	}
	if deletes && !c.NeverAttached {
		without := "no volume is deleted, for nobody can tell whether one is attached"
		rights = append(rights,
			Right{Group: storage, Resource: "volumeattachments", Verb: "list", Without: without, Unsafe: true},
			Right{Group: storage, Resource: "volumeattachments", Verb: "watch", Without: without, Unsafe: true})
	}
	if c.Brake.Deletions > 0 && !c.DryRun {
		for _, verb := range []string{"get", "patch"} {
			rights = append(rights, Right{Group: "coordination.k8s.io", Resource: "leases", Verb: verb, Namespace: c.Brake.Lease.Namespace,
				Without: "the brake does not survive a restart, and is not let go", Unsafe: verb == "get"})
		}
	}
	if _, none := c.Events.(board.NoEvents); !none {
		for _, verb := range []string{"create", "patch"} {
			rights = append(rights, Right{Resource: "events", Verb: verb, Without: "what keeps a PV is told in the log and the metrics only"})
		}
	}
	return rights
}

// Missing returns those of the rights of its Config that the API server does not grant; see the
// function of the same name.
func (r *Reclaimer) Missing(ctx context.Context) ([]Right, error) {
	return Missing(ctx, r.authorization, r.cfg.Rights())
}

// Missing returns those of the rights that the API server does not grant to whom the client speaks for,
// by one SelfSubjectAccessReview each. It changes nothing, and needs no more rights than every
// authenticated user has. An error means that it could not be found out.
func Missing(ctx context.Context, client authorizationv1.AuthorizationV1Interface, rights []Right) ([]Right, error) {
	var missing []Right
	for _, right := range rights {
		granted, err := right.granted(ctx, client)
		if err != nil {
			return nil, err
		}
		if !granted {
			missing = append(missing, right)
		}
	}
	return missing, nil
}

func (r Right) granted(ctx context.Context, client authorizationv1.AuthorizationV1Interface) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return kube.Granted(ctx, client, r.Verb, r.Group, r.Resource, r.Namespace, r.Name)
}
