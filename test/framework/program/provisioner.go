//go:build unix

package program

import (
	"context"
	"fmt"
	"io"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// ProvisionerVersion is the version of the stock external-provisioner in
// test/framework/nodes/tools/external-provisioner.
const ProvisionerVersion = "v6.4.0"

// BuildProvisioner compiles the stock external-provisioner, without the C library, and returns the path of the binary.
// Its module is of its own: it needs other versions of Kubernetes' libraries.
func BuildProvisioner(ctx context.Context, progress io.Writer) (string, error) {
	return process.Build(ctx, "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", progress,
		"-modfile=test/framework/nodes/tools/external-provisioner/go.mod", "-tags=netgo,osusergo")
}

// BuildStock compiles a stock sidecar beside a provisioner, or the controller of snapshots, of the versions in
// test/framework/nodes/tools/sidecars, and returns the path of the binary.
func BuildStock(ctx context.Context, name string, progress io.Writer) (string, error) {
	pkg, known := map[string]string{
		"csi-resizer":         "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer",
		"csi-snapshotter":     "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
		"snapshot-controller": "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
	}[name]
	if !known {
		return "", fmt.Errorf("build %s: no such sidecar", name)
	}
	return process.Build(ctx, pkg, progress, "-modfile=test/framework/nodes/tools/sidecars/go.mod",
		"-tags=netgo,osusergo")
}
