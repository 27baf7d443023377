// Package permission describes the permissions that a controller needs from the API server, and finds the missing
// ones.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package permission

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Permission is one permission that a controller needs from the API server.
type Permission struct {
	// Group, Resource and Verb are used as in an RBAC rule; an empty Group is the core group.
	Group, Resource, Verb string
	// Namespace is empty for the whole cluster, and Name for all objects.
	Namespace, Name string
	// Without describes the effect of its absence.
	Without string
	// Unsafe is true if no deletion can be proven to be safe without it, so that none is made.
	Unsafe bool
}

// String returns one line with the permission, the effect of its absence, and the rule that grants it.
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

// Missing returns the permissions that the API server does not grant to the client's user, found with one
// SelfSubjectAccessReview each. It changes nothing, and needs no more permissions than every authenticated user has.
// It returns an error if a review fails.
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

// Checker finds the missing ones among the permissions of a controller, which embeds it.
type Checker struct {
	client authorizationv1.AuthorizationV1Interface
	rights []Permission
}

// NewChecker returns a Checker of these permissions of the client's user.
func NewChecker(client authorizationv1.AuthorizationV1Interface, rights []Permission) Checker {
	return Checker{client, rights}
}

// MissingPermissions returns the permissions that the API server does not grant; see [Missing].
func (c Checker) MissingPermissions(ctx context.Context) ([]Permission, error) {
	return Missing(ctx, c.client, c.rights)
}

func (r Permission) granted(ctx context.Context, client authorizationv1.AuthorizationV1Interface) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	return kube.Granted(ctx, client, r.Verb, r.Group, r.Resource, r.Namespace, r.Name)
}
