//go:build unix && !linux

package main

import (
	"context"
	"errors"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

// startRealNodes returns an error, since nodes need Linux.
func startRealNodes(context.Context, *printer, *controlplane.ControlPlane, string) (podNodes, error) {
	return nil, errors.New("they need Linux")
}
