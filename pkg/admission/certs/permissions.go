package certs

import (
	"context"
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
)

// Rights returns what a Keeper with these settings needs to be allowed: each on the one object by its
// name, but for making the Secret, which has no name in a rule yet.
func (c Config) Permissions() []access.Permission {
	const unserved = "there is no certificate, so the webhooks are not asked"
	secret := func(verb, name string) access.Permission {
		return access.Permission{Resource: "secrets", Verb: verb, Namespace: c.Namespace, Name: name, Without: unserved}
	}
	rights := []access.Permission{
		secret("get", c.Secret), secret("create", ""),
		{Resource: "secrets", Verb: "patch", Namespace: c.Namespace, Name: c.Secret, Without: "the webhooks' certificate is not exchanged, and ends"},
	}
	for _, name := range c.Webhooks {
		for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
			for _, verb := range []string{"get", "patch"} {
				rights = append(rights, access.Permission{
					Group: "admissionregistration.k8s.io", Resource: resource, Verb: verb, Name: name,
					Without: fmt.Sprintf("the API server does not learn what to trust, so webhook configuration %q has no effect", name),
				})
			}
		}
	}
	return rights
}

// MissingPermissions returns the permissions that the API server does not grant; see [access.Missing].
func (k *Keeper) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	return access.Missing(ctx, k.authorization, k.cfg.Permissions())
}
