package objects

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// InFlight returns the entries of a driver's in-flight log by the names of their volumes, from the Leases of a
// namespace. An unreadable entry is an error.
func InFlight(ctx context.Context, client kubernetes.Interface, namespace, driver string) (map[string]inflight.Located,
	error) {
	shards, err := client.CoordinationV1().Leases(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: inflight.LabelLog + "=true"})
	if err != nil {
		return nil, fmt.Errorf("list the Leases of the in-flight log: %w", err)
	}
	entries, problems := inflight.Locate(shards.Items)
	of := map[string]inflight.Located{}
	for _, p := range problems {
		if p.Driver == driver || p.Driver == "" {
			return nil, fmt.Errorf("read the in-flight log: %s", p)
		}
	}
	for _, e := range entries {
		if e.Driver == driver {
			of[e.Volume] = e
		}
	}
	return of, nil
}
