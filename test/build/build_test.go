//go:build unix

package build

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// TestVersionOfEachTree prints the version of a source tree of each kind that a user can have.
func TestVersionOfEachTree(t *testing.T) {
	for _, variable := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"} {
		t.Setenv(variable, os.DevNull)
	}
	const commit = "git -c user.name=T -c user.email=t@example.com commit --quiet --allow-empty --message=change"
	const add = "git init --quiet && git add . && " + commit
	for name, c := range map[string]struct{ before, want string }{
		"a tarball":                              {"true", "v0.0.0-unknown"},
		"a tarball in another project's clone":   {"cd .. && git init --quiet && " + commit, "v0.0.0-unknown"},
		"a clone before its first commit":        {"git init --quiet", "v0.0.0-unknown"},
		"a clone without tags":                   {add, "v0.0.0-gCOMMIT"},
		"a clone without tags, with changes":     {add + " && echo >> Makefile", "v0.0.0-gCOMMIT-dirty"},
		"a release":                              {add + " && git tag v1.2.3", "v1.2.3"},
		"a candidate":                            {add + " && git tag v1.2.3-rc.1", "v1.2.3-rc.1"},
		"a release, with changes":                {add + " && git tag v1.2.3 && echo >> Makefile", "v1.2.3-dirty"},
		"a commit after a release":               {add + " && git tag v1.2.3 && " + commit, "v1.2.3-1-gCOMMIT"},
		"a commit with a tag that is no release": {add + " && git tag nightly", "v0.0.0-gCOMMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := filepath.Join(t.TempDir(), "tree")
			copyFiles(t, tree, "Makefile", "tools/version.sh")
			shell(t, tree, c.before)
			got := strings.TrimSpace(shell(t, tree, "tools/version.sh"))
			head := strings.TrimSpace(shell(t, tree, "git rev-parse --short HEAD 2>&1 || true"))
			if want := strings.ReplaceAll(c.want, "COMMIT", head); got != want {
				t.Errorf("version %q, want %q", got, want)
			}
			if _, err := version.ParseSemantic(got); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestInvalidVersionIsRefused(t *testing.T) {
	root := moduleRoot(t)
	for _, invalid := range []string{"unknown", "3ab49d4", "1.2.3", "v1.2", "v01.2.3", "v1.2.3 "} {
		output, err := exec.CommandContext(t.Context(), "make", "-C", root, "build", "VERSION="+invalid).CombinedOutput()
		if err == nil || !strings.Contains(string(output), "set VERSION=vX.Y.Z") {
			t.Errorf("make build VERSION=%q: %v\n%s", invalid, err, output)
		}
	}
}

// TestBuiltProgramsStart runs make build, and starts each program that it makes.
func TestBuiltProgramsStart(t *testing.T) {
	root := moduleRoot(t)
	shell(t, root, "make build")
	want := strings.TrimSpace(shell(t, root, "tools/version.sh"))
	for _, name := range []string{"csi-reclaimer", "volume-guard", "kubectl-reclaim", "mock-driver"} {
		binary := filepath.Join(root, ".build", "bin", name)
		if got := shell(t, root, binary+" --version"); !strings.HasSuffix(got, " "+want+"\n") {
			t.Errorf("%s --version: %q, want %s", name, got, want)
		}
		if got := shell(t, root, binary+" --help"); !strings.Contains(got, "--kubeconfig") && name != "mock-driver" {
			t.Errorf("%s --help: %q", name, got)
		}
	}
	t.Run("without a cluster", func(t *testing.T) {
		for _, name := range []string{"csi-reclaimer", "volume-guard"} {
			command := exec.CommandContext(t.Context(), filepath.Join(root, ".build", "bin", name), "--kubeconfig=/nowhere")
			output, err := command.CombinedOutput()
			if err == nil || strings.Contains(string(output), "panic") || !strings.Contains(string(output), "/nowhere") {
				t.Errorf("%s ended with %v, want an error that names the file:\n%s", name, err, output)
			}
		}
	})
	t.Run("the programs of other tests", func(t *testing.T) {
		for _, pkg := range []string{"./cmd/csi-reclaimer", "./cmd/volume-guard", "./cmd/kubectl-reclaim", "./mock-driver"} {
			name := filepath.Join(root, ".build", "bin", filepath.Base(pkg))
			made := must.Get(os.ReadFile(name))(t)
			// A test of another package may build the program meanwhile, and replace the file by an equal one.
			binary := must.Get(process.Build(t.Context(), pkg, os.Stderr))(t)
			if built := must.Get(os.ReadFile(binary))(t); binary != name || !bytes.Equal(made, built) {
				t.Errorf("%s is another program than that of make build", binary)
			}
		}
	})
	t.Run("with a socket", func(t *testing.T) {
		mockdriver.ForTest(t, mockdriver.Options{Binary: filepath.Join(root, ".build", "bin", "mock-driver")})
	})
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root := process.RootForTest(t)
	return root
}

// copyFiles copies files of this tree to another one.
func copyFiles(t *testing.T, tree string, names ...string) {
	t.Helper()
	for _, name := range names {
		content := must.Get(os.ReadFile(filepath.Join(moduleRoot(t), name)))(t)
		path := filepath.Join(tree, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.OK(t, os.WriteFile(path, content, 0o700))
	}
}

// shell runs a line in a folder and returns its standard output.
func shell(t *testing.T, folder, line string) string {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", line)
	command.Dir = folder
	var problems strings.Builder
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, problems.String())
	}
	return string(output)
}
