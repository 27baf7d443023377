//go:build unix

package deploy

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// What operators have at hand, compiled from the Go module proxy when it is first needed. tools/go.mod
// has the versions. Without the tag promtool would hold a client of each cloud.
var (
	helmProgram = tool("helm.sh/helm/v4/cmd/helm")
	// Whatever kubectl a machine has is of another version, or none.
	kubectlProgram  = tool("./test/deploy/kubectl.go")
	promtoolProgram = tool("github.com/prometheus/prometheus/cmd/promtool", "-tags=remove_all_sd")
)

func tool(pkg string, goFlags ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		return process.Build(context.Background(), pkg, os.Stderr, append(goFlags, "-modfile=test/deploy/tools/go.mod")...)
	})
}

// helm runs helm with nothing of this machine's user, and returns what it prints; the error has what it
// complains of.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	home := filepath.Join(t.TempDir(), "helm")
	return use(t, helmProgram, []string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home},
		args...)
}

func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return use(t, promtoolProgram, nil, args...)
}

func use(t *testing.T, program func() (string, error), env []string, args ...string) (string, error) {
	t.Helper()
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	var out, complaints bytes.Buffer
	err = process.Run(patiently(t), process.Command{Path: binary, Args: args, Env: env, Dir: root, Stdout: &out,
		Tee: &complaints})
	if err != nil {
		err = errors.Join(err, errors.New(strings.TrimSpace(complaints.String())))
	}
	return out.String(), err
}

// inDeploy is a path below deploy/.
func inDeploy(t *testing.T, path ...string) string {
	t.Helper()
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{root, "deploy"}, path...)...)
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(inDeploy(t, path...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
