package pvc

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Rights returns what a Protector with these settings needs to be allowed.
func (c Config) Rights() []reclaim.Right {
	rights := c.Config.Rights("persistentvolumeclaims")
	if len(rights) == 0 {
		return nil // off
	}
	const without = "no claim is let go, for nobody can tell whether a pod uses it"
	return append(rights,
		reclaim.Right{Resource: "pods", Verb: "list", Without: without, Unsafe: true},
		reclaim.Right{Resource: "pods", Verb: "watch", Without: without, Unsafe: true})
}

// Missing returns those of the rights that the API server does not grant; see [reclaim.Missing].
func (p *Protector) Missing(ctx context.Context) ([]reclaim.Right, error) {
	return reclaim.Missing(ctx, p.authorization, p.cfg.Rights())
}
