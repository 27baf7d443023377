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
	entries, problems := inflight.Locate(shards.Items, func(of string) bool { return of == driver })
	of := map[string]inflight.Located{}
	if len(problems) > 0 {
		return nil, fmt.Errorf("read the in-flight log: %s", problems[0])
	}
	for _, e := range entries {
		of[e.Volume] = e
	}
	return of, nil
}
