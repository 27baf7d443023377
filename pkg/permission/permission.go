// Package permission says what a controller asks the API server to be allowed to do, and finds out what is not granted.
package permission

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Permission is one thing that a controller needs the API server to be allowed to do.
type Permission struct {
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
func (r Permission) String() string {
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

// Missing returns those of the rights that the API server does not grant to whom the client speaks for,
// by one SelfSubjectAccessReview each. It changes nothing, and needs no more rights than every
// authenticated user has. An error means that it could not be found out.
func Missing(ctx context.Context, client authorizationv1.AuthorizationV1Interface, rights []Permission) ([]Permission,
	error) {
	var missing []Permission
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

func (r Permission) granted(ctx context.Context, client authorizationv1.AuthorizationV1Interface) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	return kube.Granted(ctx, client, r.Verb, r.Group, r.Resource, r.Namespace, r.Name)
}

// reviewTimeout bounds one SelfSubjectAccessReview.
const reviewTimeout = 30 * time.Second
