//go:build unix

package process

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const helloPackage = "./test/framework/process/testdata/hello"

func TestConcurrentBuildsGiveWorkingBinary(t *testing.T) {
	var group errgroup.Group
	for range 4 {
		group.Go(func() error {
			binary, err := Build(t.Context(), helloPackage, nil)
			if err != nil {
				return err
			}
			var out strings.Builder
			if err := Run(t.Context(), Command{Path: binary, Stdout: &out}); err != nil {
				return err
			}
			if out.String() != "hello\n" {
				t.Errorf("says %q", out.String())
			}
			return nil
		})
	}
	must.OK(t, group.Wait())
}

func TestFailedBuildQuotesCompiler(t *testing.T) {
	root := programModule(t, "this is no Go")
	binary := filepath.Join(root, "program")
	var progress strings.Builder
	err := buildTo(t.Context(), root, ".", binary, &progress, nil)
	if err == nil || !strings.Contains(err.Error(), "main.go:") || !strings.Contains(progress.String(), "main.go:") {
		t.Errorf("error %v, progress %q, want the compiler's words in both", err, progress.String())
	}
	if _, err := os.Stat(binary); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("binary of a failed build: %v", err)
	}
}

func TestBuildReplacesOnlyStaleBinaries(t *testing.T) {
	const program = "package main\nimport \"time\"\nfunc main() { println(`ready`); time.Sleep(time.Hour) }\n"
	root := programModule(t, program)
	binary := filepath.Join(root, "program")
	build := func() fs.FileInfo {
		must.OK(t, buildTo(t.Context(), root, ".", binary, io.Discard, nil))
		info := must.Get(os.Stat(binary))(t)
		return info
	}
	first := build()
	if again := build(); !os.SameFile(first, again) {
		t.Error("built again though nothing changed")
	}
	p := must.Get(Start(Command{Path: binary}))(t)
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	must.OK(t, p.WaitLog(ctx, "ready"))
	writeFile(t, filepath.Join(root, "main.go"), strings.Replace(program, "ready", "steady", 1))
	if replaced := build(); os.SameFile(first, replaced) {
		t.Error("not replaced though its source changed")
	}
	if _, err := os.Stat(binary + ".next"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("intermediate file: %v, want none", err)
	}
	if !p.Running() {
		t.Errorf("the program that ran from the old binary ended: %v", p.Err())
	}
}

func TestModuleRoot(t *testing.T) {
	root := must.Get(ModuleRoot())(t)
	if _, err := os.Stat(filepath.Join(root, helloPackage, "main.go")); err != nil {
		t.Errorf("root %q: %v", root, err)
	}
	t.Chdir(programModule(t, "package main"))
	if root, err := ModuleRoot(); err == nil {
		t.Errorf("found %q from a module of another name", root)
	}
}

// programModule writes a module of one main package.
func programModule(t *testing.T, source string) (root string) {
	t.Helper()
	root = t.TempDir()
	writeFile(t, filepath.Join(root, "go.mod"), "module example.test/program\n")
	writeFile(t, filepath.Join(root, "main.go"), source)
	return root
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	must.OK(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestModuleDirOfRequiredModule(t *testing.T) {
	dir := must.Get(ModuleDir(t.Context(), "github.com/container-storage-interface/spec"))(t)
	if _, err := os.Stat(filepath.Join(dir, "csi.proto")); err != nil {
		t.Error(err)
	}
}

func TestModuleDirOfUnknownModule(t *testing.T) {
	const stranger = "example.test/stranger"
	if dir, err := ModuleDir(t.Context(), stranger); err == nil || !strings.Contains(err.Error(), stranger) {
		t.Errorf("got %q, %v", dir, err)
	}
}
