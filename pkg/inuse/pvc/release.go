package pvc

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// List reads the claims first and the pods after them, because a pod that is missing from the second list cannot begin
// to use a terminating claim.
func (k kind) List(ctx context.Context) ([]inuse.Held, error) {
	claims, err := k.cluster.listClaims(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := k.cluster.listPods(ctx, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	users := indexed(pods)
	for i, c := range claims {
		claims[i] = c.Decided(ifDeleted(c.Object, users.usage(c.Object), k.cfg.TerminatedPods))
	}
	return claims, nil
}

// ifDeleted returns the function that decides on a claim as if it were terminating.
func ifDeleted(c Claim, used Usage, ended TerminatedPods) func(inuse.Duty) inuse.Decision {
	c = c.AsDeleted()
	return func(d inuse.Duty) inuse.Decision {
		return Decide(Facts{Duty: d, Ended: ended, Claim: c, Read: Reading{Made: true, Usage: used}})
	}
}
