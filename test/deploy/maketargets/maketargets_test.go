//go:build unix

package maketargets

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// patience is for compiling all programs on a busy machine.
const patience = 20 * time.Minute

func root(t *testing.T) string {
	t.Helper()
	return process.RootForTest(t)
}

// execute runs a program and returns its output.
func execute(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, complaints bytes.Buffer
	err := process.Run(ctx, process.Command{Path: program, Args: args, Dir: dir, Stdout: &out, Tee: &complaints})
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%s", filepath.Base(program), args, err, out.String(), complaints.String())
	}
	return out.String()
}

// TestCheapTargetsRun runs each cheap target: in this checkout if a variable redirects its output, otherwise in a small
// tree.
func TestCheapTargetsRun(t *testing.T) {
	tests := map[string]func(*testing.T){
		"help": func(t *testing.T) {
			if out := execute(t, root(t), "make", "help"); !strings.Contains(out, "make build ") {
				t.Errorf("it prints %q", out)
			}
		},
		"plugin": func(t *testing.T) {
			bin := t.TempDir()
			execute(t, root(t), "make", "plugin", "BIN="+bin)
			start(t, bin, "kubectl-reclaim")
		},
		"images": images,
		"clean":  clean,
		"fmt":    format,
	}
	if want := slices.Sorted(slices.Values(run())); !slices.Equal(slices.Sorted(maps.Keys(tests)), want) {
		t.Errorf("tests of %q, want %q", slices.Sorted(maps.Keys(tests)), want)
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

// start has the programs of a folder, which has no others, say their version and their flags.
func start(t *testing.T, bin string, programs ...string) {
	t.Helper()
	var made []string
	for _, program := range entries(t, bin) {
		made = append(made, program.Name())
	}
	if !slices.Equal(made, programs) {
		t.Errorf("made %q, want %q", made, programs)
	}
	version := treeVersion(t)
	for _, program := range programs {
		if out := execute(t, bin, filepath.Join(bin, program), "--version"); !strings.Contains(out, version) {
			t.Errorf("%s --version prints %q, want %s in it", program, out, version)
		}
		if out := execute(t, bin, "sh", "-c", "./"+program+" --help 2>&1"); len(out) < 100 {
			t.Errorf("%s --help prints %q", program, out)
		}
	}
}

func treeVersion(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(execute(t, root(t), filepath.Join(root(t), "tools", "version.sh")))
}

func entries(t *testing.T, dir string) []fs.DirEntry {
	t.Helper()
	all, err := os.ReadDir(dir)
	suite.Must(t, err)
	return all
}

// images runs the target without a version, as docs/how-to/images.md has it, for this architecture.
func images(t *testing.T) {
	suite.Deep(t, suite.Compiles) // without the paths of this machine, each package is another one
	folder := t.TempDir()
	execute(t, root(t), "make", "images", "IMAGES="+folder, "IMAGE_PLATFORMS=linux/"+runtime.GOARCH)
	var made []string
	for _, program := range entries(t, folder) {
		if program.IsDir() {
			made = append(made, program.Name())
			index, err := os.ReadFile(filepath.Join(folder, program.Name(), "oci", "index.json"))
			if err != nil || !bytes.Contains(index, []byte(treeVersion(t))) {
				t.Errorf("%s: %v, want version %s in\n%s", program.Name(), err, treeVersion(t), index)
			}
		}
	}
	if want := []string{"csi-reclaimer", "kubectl-reclaim", "mock-driver", "volume-guard"}; !slices.Equal(made, want) {
		t.Errorf("images of %q, want %q", made, want)
	}
}

// tree is a folder with the Makefile and these files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"Makefile", "tools/version.sh"} {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		suite.Must(t, err)
		files[name] = string(text)
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		suite.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		suite.Must(t, os.WriteFile(file, []byte(text), 0o755))
	}
	return dir
}

func clean(t *testing.T) {
	dir := tree(t, map[string]string{".build/bin/program": "", "kept": ""})
	execute(t, dir, "make", "clean")
	var left []string
	for _, entry := range entries(t, dir) {
		left = append(left, entry.Name())
	}
	if want := []string{"Makefile", "kept", "tools"}; !slices.Equal(left, want) {
		t.Errorf("it leaves %q, want %q", left, want)
	}
}

func format(t *testing.T) {
	files := map[string]string{}
	folders := []string{"cmd", "any"}
	for _, folder := range folders {
		files[folder+"/a.go"] = "package  a\n"
	}
	dir := tree(t, files)
	execute(t, dir, "make", "fmt")
	for _, folder := range folders {
		if text, err := os.ReadFile(filepath.Join(dir, folder, "a.go")); err != nil || string(text) != "package a\n" {
			t.Errorf("%s: %v, %q", folder, err, text)
		}
	}
}

// TestOtherTargetsAreChecked expects a recipe for each of the other targets.
func TestOtherTargetsAreChecked(t *testing.T) {
	for line := range onlyChecked() {
		t.Run(line, func(t *testing.T) {
			if out := execute(t, root(t), "make", append([]string{"-n"}, strings.Fields(line)...)...); out == "" {
				t.Error("it prints nothing")
			}
		})
	}
}

// TestEachTargetHasATest finds targets in make help, README and docs that this package does not know.
func TestEachTargetHasATest(t *testing.T) {
	target := regexp.MustCompile(`(?m)^  make ([a-z0-9-]+) `)
	for _, found := range target.FindAllStringSubmatch(execute(t, root(t), "make", "help"), -1) {
		if _, known := Why(found[1]); !known {
			t.Errorf("make help has %q: run it here, or say why not", found[1])
		}
	}
	named := regexp.MustCompile("`make ([a-z0-9-]+)")
	pages := []string{"README.md", "CONTRIBUTING.md"}
	err := fs.WalkDir(os.DirFS(root(t)), "docs", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(name) == ".md" {
			pages = append(pages, name)
		}
		return err
	})
	suite.Must(t, err)
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(page)))
		suite.Must(t, err)
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			if _, known := Why(found[1]); !known {
				t.Errorf("%s names make %s, which is no target", page, found[1])
			}
		}
	}
}
