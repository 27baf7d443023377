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

// BuildStock compiles a stock program beside a provisioner: csi-attacher, csi-resizer, csi-snapshotter, or
// snapshot-controller, of the versions in test/framework/nodes/tools. It returns the path of the binary, which is
// static.
func BuildStock(ctx context.Context, name string, progress io.Writer) (string, error) {
	module, known := map[string]string{
		"csi-attacher":        "external-attacher/v4",
		"csi-resizer":         "external-resizer/v2",
		"csi-snapshotter":     "external-snapshotter/v8",
		"snapshot-controller": "external-snapshotter/v8",
	}[name]
	if !known {
		return "", fmt.Errorf("build %s: no such sidecar", name)
	}
	versions := "sidecars/go.mod"
	if name == "csi-attacher" {
		versions = "go.mod"
	}
	return process.Build(ctx, "github.com/kubernetes-csi/"+module+"/cmd/"+name, progress,
		"-modfile=test/framework/nodes/tools/"+versions, "-tags=netgo,osusergo")
}
