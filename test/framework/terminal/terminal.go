//go:build unix

// Package terminal is what a reader of the documentation sits at: a shell with the real kubectl and helm, and with the
// plugin, as a cluster's administrator; and the commands that a page has the reader type.
package terminal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// What operators have at hand, compiled from the Go module proxy when it is first needed. test/deploy/tools/go.mod has
// the versions. Each returns the path of its binary.
var (
	Helm = tool("helm.sh/helm/v4/cmd/helm")
	// Kubectl: whatever a machine has is of another version, or none.
	Kubectl = tool("./test/deploy/kubectl.go")
	// Promtool: without the tag it would hold a client of each cloud.
	Promtool = tool("github.com/prometheus/prometheus/cmd/promtool", "-tags=remove_all_sd")
)

func tool(pkg string, goFlags ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		return process.Build(context.Background(), pkg, os.Stderr, append(goFlags, "-modfile=test/deploy/tools/go.mod")...)
	})
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
