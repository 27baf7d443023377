//go:build unix

// Package sidecar runs csi-reclaimer as a process of its own, as it runs beside a driver:
// for tests, the demo and benchmarks. What it does to PVs is left to the program.
package sidecar

import (
	"context"
	"io"

	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
)

const name = "csi-reclaimer"

// Options say how to run the sidecar.
type Options struct {
	// Address is the CSI driver's socket (--csi-address). Required.
	Address string
	// Kubeconfig is the path of a kubeconfig file. Required.
	Kubeconfig string
	// Args are further flags.
	Args []string
	// Env are variables of its environment, as NAME=value.
	Env []string
	// Binary is the program. Default: built from this module, see Build.
	Binary string
	// Dir holds the log; it must exist. Default: a new one that Stop removes.
	Dir string
	// Progress is told what the go command says, where the binary is built. Default: nobody.
	Progress io.Writer
}

// Sidecar is a csi-reclaimer with its process.
type Sidecar = daemon.Daemon

// Build compiles csi-reclaimer and returns the path of the binary. See [daemon.Build].
func Build(ctx context.Context, progress io.Writer, goFlags ...string) (string, error) {
	return daemon.Build(ctx, name, progress, goFlags...)
}

// Start starts a sidecar and returns at once. See [daemon.Start].
func Start(ctx context.Context, o Options) (*Sidecar, error) {
	args := []string{"--csi-address=" + o.Address, "--kubeconfig=" + o.Kubeconfig}
	return daemon.Start(ctx, daemon.Options{
		Name: name, Binary: o.Binary, Args: append(args, o.Args...), Env: o.Env, Dir: o.Dir, Progress: o.Progress,
	})
}
