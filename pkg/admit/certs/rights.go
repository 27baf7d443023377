package certs

import (
	"context"
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Rights returns what a Keeper with these settings needs to be allowed: each on the one object by its
// name, but for making the Secret, which has no name in a rule yet.
func (c Config) Rights() []reclaim.Right {
	const unserved = "there is no certificate, so the webhooks are not asked"
	secret := func(verb, name string) reclaim.Right {
		return reclaim.Right{Resource: "secrets", Verb: verb, Namespace: c.Namespace, Name: name, Without: unserved}
	}
	rights := []reclaim.Right{
		secret("get", c.Secret), secret("create", ""),
		{Resource: "secrets", Verb: "patch", Namespace: c.Namespace, Name: c.Secret, Without: "the webhooks' certificate is not exchanged, and ends"},
	}
	for _, name := range c.Webhooks {
		for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
			for _, verb := range []string{"get", "patch"} {
				rights = append(rights, reclaim.Right{
					Group: "admissionregistration.k8s.io", Resource: resource, Verb: verb, Name: name,
					Without: fmt.Sprintf("the API server does not learn what to trust, so webhook configuration %q has no effect", name),
				})
			}
		}
	}
	return rights
}

// Missing returns those of the rights that the API server does not grant; see [reclaim.Missing].
func (k *Keeper) Missing(ctx context.Context) ([]reclaim.Right, error) {
	return reclaim.Missing(ctx, k.authorization, k.cfg.Rights())
}
