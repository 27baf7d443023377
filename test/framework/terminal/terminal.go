//go:build unix

// Package terminal is the terminal of a reader of the documentation: a shell with the real kubectl and helm, and with
// the plugin, as a cluster's administrator. It also extracts the commands from a page.
package terminal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// The operators' tools are compiled from the Go module proxy when they are first needed. test/deploy/tools/go.mod has
// the versions. Each function returns the path of its binary.
var (
	Helm = tool("helm.sh/helm/v4/cmd/helm")
	// Kubectl is compiled, because a machine's kubectl may be missing or of another version.
	Kubectl = tool("./test/deploy/kubectl.go")
	// Promtool would contain a client of each cloud without the tag.
	Promtool = tool("github.com/prometheus/prometheus/cmd/promtool", "-tags=remove_all_sd")
)

func tool(pkg string, goFlags ...string) func() (string, error) {
	return func() (string, error) {
		return process.Build(context.Background(), pkg, os.Stderr, append(goFlags, "-modfile=test/deploy/tools/go.mod")...)
	}
}

// Environment returns the variables of a shell: its PATH begins with kubectl, helm and the plugin, and nothing is the
// machine's user's. home is an empty directory, where the kubeconfig is, too.
func Environment(ctx context.Context, home string, config *rest.Config) ([]string, error) {
	programs := filepath.Join(home, "bin")
	if err := os.Mkdir(programs, 0o700); err != nil {
		return nil, err
	}
	for name, build := range map[string]func() (string, error){
		"kubectl": Kubectl, "helm": Helm,
		"kubectl-reclaim": func() (string, error) { return program.Build(ctx, "kubectl-reclaim", os.Stderr) },
	} {
		binary, err := build()
		if err != nil {
			return nil, fmt.Errorf("make terminal: %w", err)
		}
		if err := os.Symlink(binary, filepath.Join(programs, name)); err != nil {
			return nil, err
		}
	}
	kubeconfig := filepath.Join(home, ".kube", "config")
	if err := os.Mkdir(filepath.Dir(kubeconfig), 0o700); err != nil {
		return nil, err
	}
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	return []string{
		"HOME=" + home, "KUBECONFIG=" + kubeconfig, "PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home,
	}, nil
}
