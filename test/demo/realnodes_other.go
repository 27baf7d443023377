//go:build unix && !linux

package main

import (
	"context"
	"errors"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

// startRealNodes says that there are none.
func startRealNodes(context.Context, *printer, *controlplane.ControlPlane, string) (podNodes, error) {
	return nil, errors.New("they need Linux")
}
