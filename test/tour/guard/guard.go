//go:build unix

// Package guard compiles and starts volume-guard for the acts that show it.
package guard

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// Name is the name of volume-guard, and of its service account.
const Name = "volume-guard"

// Build compiles volume-guard, and reports its progress to the cluster's printer.
func Build(ctx context.Context, c *cluster.Cluster) (binary string, err error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.BuildPatience)
	defer cancel()
	return program.Build(ctx, Name, c.Printer.Out)
}

// Start runs volume-guard until the cluster ends, and returns once it is ready. It has the permissions of the
// kubeconfig.
func Start(ctx context.Context, c *cluster.Cluster, binary, kubeconfig string, args ...string) (*program.Program,
	error) {
	dir, err := c.Folder(Name)
	if err != nil {
		return nil, err
	}
	p, err := program.Start(ctx, program.Options{Name: Name, Binary: binary, Dir: dir,
		Args: append([]string{"--kubeconfig=" + kubeconfig, "--leader-election=false"}, args...)})
	if err != nil {
		return nil, err
	}
	c.OnEnd(p.Stop)
	return p, p.WaitReady(ctx)
}
