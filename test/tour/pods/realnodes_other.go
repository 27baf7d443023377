//go:build unix && !linux

package pods

import (
	"context"
	"errors"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
)

// startRealNodes returns an error, since nodes need Linux.
func startRealNodes(context.Context, *cluster.Cluster) (podNodes, error) {
	return nil, errors.New("they need Linux")
}
