//go:build unix

package program

import (
	"context"
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
