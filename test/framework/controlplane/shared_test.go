//go:build unix

package controlplane

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// TestNewestSharesRootModuleVersions expects the same version of each module that both go.mod files require. Then one
// compilation of a package serves the newest control plane and the project's programs.
func TestNewestSharesRootModuleVersions(t *testing.T) {
	root := process.RootForTest(t)
	dir, err := Newest.moduleDir()
	if err != nil {
		t.Fatal(err)
	}
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
	content, err := os.ReadFile(gomod)
	if err != nil {
		t.Fatal(err)
	}
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
		flags, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(strings.Fields(string(flags)), process.NoDWARF) {
			t.Errorf("make %s: %q, want %s among them", question[len(question)-1], flags, process.NoDWARF)
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/...", "./mock-driver", "./test/demo",
		"./test/tour")
	list.Dir = root
	packages, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
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
	dir, err := Newest.moduleDir()
	if err != nil {
		t.Fatal(err)
	}
	b := build{module: dir, cache: t.TempDir()}
	for range 2 { // with a new copy, and with the present one
		modfile, err := b.trim(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		var packages bytes.Buffer
		list := b.goCommand(&packages, "list", "-deps", "-modfile="+modfile, "../components/lean")
		if err := process.Run(t.Context(), list); err != nil {
			t.Fatal(err)
		}
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
