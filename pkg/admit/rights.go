package admit

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Rights returns what an APIServer needs to be allowed.
func Rights() []reclaim.Right {
	return []reclaim.Right{
		{Resource: "pods", Verb: "get", Without: "pods are bound although a claim of theirs is being deleted"},
		{Resource: "persistentvolumeclaims", Verb: "get", Without: "pods are put on nodes although a claim of theirs is being deleted"},
	}
}

// Missing returns those of the rights that the API server does not grant; see [reclaim.Missing].
func (a *APIServer) Missing(ctx context.Context) ([]reclaim.Right, error) {
	return reclaim.Missing(ctx, a.clients.Authorization, Rights())
}
