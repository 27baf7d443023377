package main

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

func TestRunContinuesAfterFailedSuite(t *testing.T) {
	for name, c := range map[string]struct {
		failing, interrupted string
		ok                   bool
		ran                  []string
		summary              string
	}{
		"all end well":         {"", "", true, []string{"a", "b", "c"}, `ok +\d+s  a\nok +\d+s  b\nok +\d+s  c\n`},
		"the first fails":      {"a", "", false, []string{"a", "b", "c"}, `FAILED +\d+s  a\nok +\d+s  b\nok +\d+s  c\n`},
		"the last fails":       {"c", "", false, []string{"a", "b", "c"}, `ok +\d+s  a\nok +\d+s  b\nFAILED +\d+s  c\n`},
		"one is interrupted":   {"b", "b", false, []string{"a", "b"}, `ok +\d+s  a\nFAILED +\d+s  b\nnot run +c\n`},
		"it is ended in a gap": {"", "b", false, []string{"a", "b"}, `ok +\d+s  a\nok +\d+s  b\nnot run +c\n`},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var out strings.Builder
			var ran []string
			ok := run(ctx, &out, []string{"a", "b", "c"}, func(target string) error {
				ran = append(ran, target)
				if target == c.interrupted {
					interrupt()
				}
				if target == c.failing {
					return errors.New("exit status 2")
				}
				return nil
			})
			if ok != c.ok || !slices.Equal(ran, c.ran) || !regexp.MustCompile(`\n`+c.summary+`$`).MatchString(out.String()) {
				t.Errorf("ok %v, ran %q, and printed:\n%s", ok, ran, out.String())
			}
		})
	}
}

// TestMakeTestRunsEverySuite: make test names each target test-NAME of the Makefile.
func TestMakeTestRunsEverySuite(t *testing.T) {
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	recipe := regexp.MustCompile(`(?m)^test:.*\n\t.*\./test/suites (.*)$`).FindStringSubmatch(string(makefile))
	if recipe == nil {
		t.Fatal("make test does not run test/suites")
	}
	run := strings.Fields(recipe[1])
	targets := regexp.MustCompile(`(?m)^(test-[a-z0-9-]+):`).FindAllStringSubmatch(string(makefile), -1)
	for _, target := range targets {
		if !slices.Contains(run, target[1]) {
			t.Errorf("make test does not run %s: %q", target[1], run)
		}
	}
	if len(targets) < 5 || len(run) != len(targets)+1 {
		t.Errorf("make test runs %q of the targets %q", run, targets)
	}
}

// TestDecisionsStartNoGoroutine: what make test-unit tests without the race detector has nothing to race with.
func TestDecisionsStartNoGoroutine(t *testing.T) {
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "pkg/internal/engine/*/*.go"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files of decisions: %v", len(files), err)
	}
	for _, file := range files {
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.ChanType:
				t.Errorf("%s: a decision does not run beside others; add the package to what is tested with -race",
					set.Position(n.Pos()))
			}
			return true
		})
	}
}
