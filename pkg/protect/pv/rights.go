package pv

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/protect"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Rights returns what a Protector with these settings needs to be allowed.
func Rights(c protect.Config) []reclaim.Right { return c.Rights("persistentvolumes") }

// Missing returns those of the rights that the API server does not grant; see [reclaim.Missing].
func (p *Protector) Missing(ctx context.Context) ([]reclaim.Right, error) {
	return reclaim.Missing(ctx, p.authorization, p.rights)
}
