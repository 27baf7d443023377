//go:build unix

package program

import (
	"context"
	"io"
)

const sidecarName = "csi-reclaimer"

// SidecarOptions say how to run the sidecar.
type SidecarOptions struct {
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
	// Dir holds the log; it must exist. Default: a new folder that Stop removes.
	Dir string
	// Progress receives the output of the go command. Default: none.
	Progress io.Writer
}

// BuildSidecar compiles csi-reclaimer and returns the path of the binary. See [Build].
func BuildSidecar(ctx context.Context, progress io.Writer, goFlags ...string) (string, error) {
	return Build(ctx, sidecarName, progress, goFlags...)
}

// StartSidecar starts csi-reclaimer beside a driver and returns at once. See [Start].
func StartSidecar(ctx context.Context, o SidecarOptions) (*Program, error) {
	args := []string{"--csi-address=" + o.Address, "--kubeconfig=" + o.Kubeconfig}
	return Start(ctx, Options{
		Name: sidecarName, Binary: o.Binary, Args: append(args, o.Args...), Env: o.Env, Dir: o.Dir, Progress: o.Progress,
	})
}
