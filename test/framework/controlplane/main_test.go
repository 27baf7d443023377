//go:build unix

package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// roleVariable makes the test binary play a test run that gets killed.
const roleVariable = "CONTROLPLANE_TEST_ROLE"

// testTimeout bounds each wait. Events come within a second; slow machines and the race detector get more.
const testTimeout = 3 * time.Minute

// shared is the control plane of all tests that need an ordinary one and restore its state.
var shared struct {
	start sync.Once
	cp    *ControlPlane
	err   error
}

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		playKilledRun()
	}
	code := m.Run()
	if shared.cp != nil {
		if err := shared.cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// sharedControlPlane starts the shared control plane for the first test that asks.
func sharedControlPlane(t *testing.T) *ControlPlane {
	t.Helper()
	shared.start.Do(func() {
		shared.cp, shared.err = Start(context.Background(), Newest, Options{AuditLog: true, Progress: os.Stderr})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cp
}

// start starts a control plane that the test may do to as it likes.
func start(t *testing.T, version Version, options Options) *ControlPlane {
	t.Helper()
	options.Progress = os.Stderr
	cp := must.Get(Start(t.Context(), version, options))(t)
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client := must.Get(kubernetes.NewForConfig(config))(t)
	return client
}

func namespace(t *testing.T, cp *ControlPlane) string {
	t.Helper()
	name := must.Get(cp.CreateNamespace(t.Context(), "test"))(t)
	return name
}

var errNotYet = errors.New("not yet")

// eventually repeats question until it has no error.
func eventually(t *testing.T, what string, question func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := poll(ctx, func() error { return question(ctx) }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// errNotYetBecause hides from poll that err looks final.
func errNotYetBecause(err error) error { return fmt.Errorf("%w: %v", errNotYet, err) } //nolint:errorlint // on purpose

// TestNewestSharesRootModuleVersions expects the same version of each module that both go.mod files require. Then one
// compilation of a package serves the newest control plane and the project's programs.
func TestNewestSharesRootModuleVersions(t *testing.T) {
	root := process.RootForTest(t)
	dir := must.Get(Newest.moduleDir())(t)
	own, theirs := modules(t, filepath.Join(root, "go.mod")), modules(t, filepath.Join(dir, "go.mod"))
	both := 0
	for path, version := range own {
		other, required := theirs[path]
		if !required {
			continue
		}
		both++
		if other != version {
			t.Errorf("%s is %s in go.mod, and %s in that of %s: set both to the newer one, and go mod tidy", path, version,
				other, Newest)
		}
	}
	if both < 50 {
		t.Errorf("only %d modules are required by both", both)
	}
}

// modules are the versions that a go.mod requires, after its replacements.
func modules(t *testing.T, gomod string) map[string]string {
	t.Helper()
	content := must.Get(os.ReadFile(gomod))(t)
	required, replaced := map[string]string{}, map[string]string{}
	for scanner := bufio.NewScanner(bytes.NewReader(content)); scanner.Scan(); {
		line, _, _ := strings.Cut(scanner.Text(), "//")
		switch fields := strings.Fields(line); {
		case len(fields) == 2 && strings.HasPrefix(fields[1], "v"):
			required[fields[0]] = fields[1]
		case len(fields) == 4 && fields[1] == "=>":
			replaced[fields[0]] = fields[3]
		}
	}
	for path, version := range replaced {
		if _, ok := required[path]; ok {
			required[path] = version
		}
	}
	return required
}

// TestCheapFlagsSplitNoCache checks two conditions without which packages would be compiled twice. The Makefile has the
// control planes' flag for all packages, and no program of the root module has a package that control planes compile
// with other flags.
func TestCheapFlagsSplitNoCache(t *testing.T) {
	root := process.RootForTest(t)
	for _, question := range [][]string{{"build-flags"}, {"--eval=flags:;@echo $(GOFLAGS)", "flags"}} {
		command := exec.CommandContext(t.Context(), "make", append([]string{"--silent", "-C", root}, question...)...)
		command.Env = append(os.Environ(), "GOFLAGS=", "MAKELEVEL=0")
		flags := must.Get(command.Output())(t)
		if !slices.Contains(strings.Fields(string(flags)), process.NoDWARF) {
			t.Errorf("make %s: %q, want %s among them", question[len(question)-1], flags, process.NoDWARF)
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/...", "./mock-driver", "./test/demo",
		"./test/tour")
	list.Dir = root
	packages := must.Get(list.Output())(t)
	n := 0
	for scanner := bufio.NewScanner(bytes.NewReader(packages)); scanner.Scan(); n++ {
		for _, module := range onlyHere {
			if strings.HasPrefix(scanner.Text(), module+"/") {
				t.Errorf("%s is in a program, and %s in onlyHere", scanner.Text(), module)
			}
		}
	}
	if n < 500 {
		t.Errorf("only %d packages are in the programs", n)
	}
}

// TestNewestIsCompiledWithoutFakeClients checks the list of packages of the lean control plane, with a separate cache.
func TestNewestIsCompiledWithoutFakeClients(t *testing.T) {
	dir := must.Get(Newest.moduleDir())(t)
	b := build{module: dir, cache: t.TempDir()}
	for range 2 { // with a new copy, and with the present one
		modfile := must.Get(b.trim(t.Context(), t.TempDir()))(t)
		var packages bytes.Buffer
		list := b.goCommand(&packages, "list", "-deps", "-modfile="+modfile, "../components/lean")
		must.OK(t, process.Run(t.Context(), list))
		if !strings.Contains(packages.String(), trimmedModule+"/pkg/admission/plugin/policy/generic\n") {
			t.Error("the package with the removed file is missing")
		}
		for line := range strings.Lines(packages.String()) {
			if strings.HasSuffix(line, "/fake\n") {
				t.Errorf("compiled: %s", line)
			}
		}
	}
}
