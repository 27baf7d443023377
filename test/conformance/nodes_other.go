//go:build unix && !linux

package conformance

import (
	"context"
	"errors"
)

func nodesSupported() error { return errors.New("real nodes need Linux") }

func (c *cluster) startPlaneWithTunnel(context.Context) error { return nodesSupported() }

func (c *cluster) startRealNodes(context.Context) error { return nodesSupported() }

func (c *cluster) startMockDriver(context.Context) error { return nodesSupported() }

func (c *cluster) startVendor(context.Context) error { return nodesSupported() }

func (c *cluster) startMocked(context.Context) error { return nodesSupported() }

type nodePool struct{}
