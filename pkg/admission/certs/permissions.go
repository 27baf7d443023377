package certs

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Permissions returns the permissions that a Rotator with these settings needs: each on one object by its name, except
// create, which a rule cannot restrict by name.
func (c Config) Permissions() []permission.Permission {
	const unserved = "there is no certificate, so the API server cannot call the webhooks"
	secret := func(verb, name string) permission.Permission {
		return permission.Permission{Resource: "secrets", Verb: verb, Namespace: c.Namespace, Name: name, Without: unserved}
	}
	permissions := []permission.Permission{secret("get", c.Secret)}
	if !c.External {
		permissions = append(permissions, secret("create", ""),
			permission.Permission{Resource: "secrets", Verb: "patch", Namespace: c.Namespace, Name: c.Secret,
				Without: "the webhooks' certificate is not rotated, and expires"})
	}
	for _, name := range c.Webhooks {
		for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
			for _, verb := range []string{"get", "patch"} {
				permissions = append(permissions, permission.Permission{
					Group: "admissionregistration.k8s.io", Resource: resource, Verb: verb, Name: name,
					Without: fmt.Sprintf("the API server does not trust the certificate, so webhook configuration %q has no effect",
						name),
				})
			}
		}
	}
	return permissions
}
