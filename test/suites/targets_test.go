package main

import (
	"go/build/constraint"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// command is a call of go test in the Makefile: the folder of its module, its packages, and its build tags.
type command struct {
	module, tags string
	packages     []string
}

var (
	assignment = regexp.MustCompile(`(?m)^([A-Z0-9_]+) *([?:]?=) *(.*)$`)
	reference  = regexp.MustCompile(`\$\(([A-Z0-9_]+)\)`)
	goTest     = regexp.MustCompile(`\bgo (-C \S+ )?test `)
	folder     = regexp.MustCompile(` -C (\S+)`)
	tags       = regexp.MustCompile(` -tags (\S+)`)
	pattern    = regexp.MustCompile(`\s(\./[^\s;)]+)`)
	tagged     = regexp.MustCompile(`(?m)^//go:build .*$`)
)

// testCommands returns the calls of go test in the recipes of the Makefile that run all tests of their packages.
func testCommands(makefile string) (all []command) {
	makefile = strings.ReplaceAll(makefile, "\\\n", " ")
	variables := map[string]string{}
	expand := func(text string) string {
		return reference.ReplaceAllStringFunc(text, func(name string) string {
			return variables[strings.Trim(name, "$()")]
		})
	}
	for _, found := range assignment.FindAllStringSubmatch(makefile, -1) {
		variables[found[1]] = found[3]
		if found[2] == ":=" { // a variable that is set later is empty in it
			variables[found[1]] = expand(found[3])
		}
	}
	for line := range strings.Lines(makefile) {
		if !strings.HasPrefix(line, "\t") {
			continue
		}
		for text := range strings.SplitSeq(expand(expand(expand(line))), ";") {
			if !goTest.MatchString(text) || strings.Contains(text, " -run ") {
				continue
			}
			c := command{module: "."}
			if found := folder.FindStringSubmatch(text); found != nil {
				c.module = found[1]
			}
			if found := tags.FindStringSubmatch(text); found != nil {
				c.tags = found[1]
			}
			for _, found := range pattern.FindAllStringSubmatch(text, -1) {
				c.packages = append(c.packages, path.Join(c.module, found[1]))
			}
			all = append(all, c)
		}
	}
	return all
}

// runs reports whether the command runs the tests of a folder in a module.
func (c command) runs(module, dir string) bool {
	return c.module == module && slices.ContainsFunc(c.packages, func(p string) bool {
		above, all := strings.CutSuffix(p, "/...")
		return p == dir || all && strings.HasPrefix(dir+"/", above+"/")
	})
}

// source is a Go file, as a path from the root of the repository, with the folder of its module.
type source struct{ file, module, text string }

func (s source) dir() string { return path.Dir(s.file) }

// sources returns the Go files of the repository.
func sources(t *testing.T, root string) (all []source) {
	t.Helper()
	modules := map[string]string{} // by folder
	err := fs.WalkDir(os.DirFS(root), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); file != "." && (strings.HasPrefix(name, ".") || name == "testdata") {
				return fs.SkipDir
			}
			modules[file] = modules[path.Dir(file)]
			if _, err := os.Stat(filepath.Join(root, file, "go.mod")); err == nil {
				modules[file] = file
			}
			return nil
		}
		if path.Ext(file) != ".go" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		all = append(all, source{file, modules[path.Dir(file)], string(text)})
		return err
	})
	if err != nil || len(all) < 1000 {
		t.Fatalf("%d Go files: %v", len(all), err)
	}
	return all
}

// TestEveryTestRunsInTarget expects a call of go test in the Makefile for each package with tests, and for each build
// tag of ours. The tag controlplane is that of test/apiserver.sh.
func TestEveryTestRunsInTarget(t *testing.T) {
	root := process.RootForTest(t)
	makefile := must.Get(os.ReadFile(filepath.Join(root, "Makefile")))(t)
	commands := testCommands(string(makefile))
	if len(commands) < 8 {
		t.Fatalf("calls of go test: %+v", commands)
	}
	apiServer := regexp.MustCompile(`^(cmd|internal|pkg|test/demo)/`) // as the script greps
	for _, s := range sources(t, root) {
		if strings.HasSuffix(s.file, "_test.go") && !slices.ContainsFunc(commands, func(c command) bool {
			return c.runs(s.module, s.dir())
		}) {
			t.Errorf("%s: no target of the Makefile runs its tests", s.file)
		}
		for _, tag := range tagsOf(t, s) {
			if tag == "controlplane" && apiServer.MatchString(s.file) {
				continue
			}
			if !slices.ContainsFunc(commands, func(c command) bool { return c.tags == tag && c.runs(s.module, s.dir()) }) {
				t.Errorf("%s: no target of the Makefile tests its package with the tag %s", s.file, tag)
			}
		}
	}
}

// tagsOf returns the build tags of a file that are neither the toolchain's nor a generator's.
func tagsOf(t *testing.T, s source) (names []string) {
	t.Helper()
	head, _, _ := strings.Cut(s.text, "\npackage ")
	line := tagged.FindString(head)
	if line == "" {
		return nil
	}
	expression, err := constraint.Parse(line)
	if err != nil {
		t.Fatalf("%s: %v", s.file, err)
	}
	known := []string{"unix", "linux", "race", "ignore", "ignore_autogenerated"}
	for _, tag := range regexp.MustCompile(`[a-z_]+`).FindAllString(expression.String(), -1) {
		if !slices.Contains(known, tag) {
			names = append(names, tag)
		}
	}
	return names
}

func TestCommandsOfMakefile(t *testing.T) {
	const makefile = "GO ?= go\nUNIT := ./a/... \\\n ./b\nE2E = $(GO) test -p 1\n\ntest:\n" +
		"\t$(GO) test -tags x $$($(GO) list $(UNIT) | grep -v x) || failed=1; \\\n\t$(GO) -C m test ./...\n" +
		"\t$(E2E) ./c\n\t$(GO) test ./d -run Update\n"
	all := testCommands(makefile)
	if len(all) != 3 || all[0].tags != "x" {
		t.Fatalf("%+v", all)
	}
	for where, want := range map[[2]string]bool{{".", "a"}: true, {".", "a/b"}: true, {".", "ab"}: false, {".", "b"}: true,
		{".", "b/c"}: false, {"m", "m/x"}: true, {"m", "m"}: true, {".", "m"}: false, {".", "c"}: true,
		{".", "d"}: false, {"a/n", "a/n"}: false} {
		if got := slices.ContainsFunc(all, func(c command) bool { return c.runs(where[0], where[1]) }); got != want {
			t.Errorf("%q runs: %v, want %v", where, got, want)
		}
	}
}
