//go:build unix

package deploy

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/terminal"
)

// helm runs helm without this machine's user settings, and returns its output. The error contains helm's messages.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	home := filepath.Join(t.TempDir(), "helm")
	return use(t, terminal.Helm, []string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home},
		args...)
}

func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return use(t, terminal.Promtool, nil, args...)
}

func use(t *testing.T, program func() (string, error), env []string, args ...string) (string, error) {
	t.Helper()
	suite.Deep(t, suite.Compiles)
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
	root := process.RootForTest(t)
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
	root := process.RootForTest(t)
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
