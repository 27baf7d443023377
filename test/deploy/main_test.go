//go:build unix

package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/terminal"
)

// cluster is the control plane that all tests share; client is its administrator's. interrupted ends with a signal.
var (
	cluster     *controlplane.ControlPlane
	client      *kubernetes.Clientset
	interrupted context.Context
)

// patience bounds a whole test, with the programs that it compiles. It is far above the usual time, even on a busy
// machine.
const patience = 10 * time.Minute

var must, until = suite.Must, suite.Until

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, stop := suite.Interruptible()
	defer stop()
	interrupted = ctx
	var err error
	if cluster, err = controlplane.Start(ctx, controlplane.Newest, controlplane.Options{Progress: os.Stderr}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if client, err = kubernetes.NewForConfig(cluster.Admin()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func patiently(t *testing.T) context.Context {
	t.Helper()
	return suite.Context(interrupted, t, patience)
}

// helm runs helm without this machine's user settings, and returns its output. The error contains helm's messages.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	home := filepath.Join(t.TempDir(), "helm")
	return use(t, terminal.Helm, []string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home},
		args...)
}

// mustHelm is helm, whose error ends the test.
func mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, args...)
	if err != nil {
		t.Fatalf("helm %q: %v", args, err)
	}
	return out
}

// expectRefused runs helm, which has to fail with this complaint.
func expectRefused(t *testing.T, complaint string, args ...string) {
	t.Helper()
	if _, err := helm(t, args...); err == nil || !strings.Contains(err.Error(), complaint) {
		t.Errorf("helm %q: %v, want a complaint of %q", args, err, complaint)
	}
}

// template returns the arguments of helm that render volume-guard's chart.
func template(t *testing.T, args ...string) []string {
	t.Helper()
	return append([]string{"template", guard, inDeploy(t, "charts", guard)}, args...)
}

func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return use(t, terminal.Promtool, nil, args...)
}

func use(t *testing.T, program func() (string, error), env []string, args ...string) (string, error) {
	t.Helper()
	suite.Deep(t, suite.Compiles)
	binary, err := program()
	must(t, err)
	var out, complaints bytes.Buffer
	err = process.Run(patiently(t), process.Command{Path: binary, Args: args, Env: env, Dir: process.RootForTest(t),
		Stdout: &out, Tee: &complaints})
	if err != nil {
		err = errors.Join(err, errors.New(strings.TrimSpace(complaints.String())))
	}
	return out.String(), err
}

// inDeploy is a path below deploy/.
func inDeploy(t *testing.T, path ...string) string {
	t.Helper()
	return filepath.Join(append([]string{process.RootForTest(t), "deploy"}, path...)...)
}

// writeFiles writes files with these texts, by their names in a folder, and makes their folders.
func writeFiles(t *testing.T, folder string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		file := filepath.Join(folder, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must(t, os.WriteFile(file, []byte(text), 0o700))
	}
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(inDeploy(t, path...))
	must(t, err)
	return data
}
