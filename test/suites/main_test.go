package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

func TestRunContinuesAfterFailedSuite(t *testing.T) {
	for name, c := range map[string]struct {
		failing, interrupted string
		ok                   bool
		ran                  []string
		summary              string
	}{
		"all end well":         {"", "", true, []string{"a", "b", "c"}, "ok a, ok b, ok c"},
		"the first fails":      {"a", "", false, []string{"a", "b", "c"}, "FAILED a, ok b, ok c"},
		"the last fails":       {"c", "", false, []string{"a", "b", "c"}, "ok a, ok b, FAILED c"},
		"one is interrupted":   {"b", "b", false, []string{"a", "b"}, "ok a, FAILED b, not run c"},
		"it is ended in a gap": {"", "b", false, []string{"a", "b"}, "ok a, ok b, not run c"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var out strings.Builder
			var ran []string
			r := runner{out: &out, folder: t.TempDir(), suite: func(s suite, output *os.File) (time.Duration, error) {
				ran = append(ran, s.target)
				if s.target == c.interrupted {
					interrupt()
				}
				if s.target == c.failing {
					return 2 * time.Second, errors.New("exit status 2")
				}
				return 2 * time.Second, nil
			}}
			ok := r.run(ctx, lanes([]string{"a", "b", "c"}))
			_, table, _ := strings.Cut(out.String(), "processor  suite\n")
			var summary []string
			for line := range strings.Lines(table) {
				summary = append(summary, regexp.MustCompile(` +(\d+s +2s)? +`).ReplaceAllString(strings.TrimSpace(line), " "))
			}
			all := regexp.MustCompile(fmt.Sprintf(`^all \d+s %ds$`, 2*len(ran)))
			last := len(summary) - 1
			if ok != c.ok || !slices.Equal(ran, c.ran) || last < 0 || strings.Join(summary[:last], ", ") != c.summary ||
				!all.MatchString(summary[last]) {
				t.Errorf("ok %v, ran %q, and printed:\n%s", ok, ran, out.String())
			}
		})
	}
}

// TestLanesRunSideBySide has each of two suites wait for the other, which both write a line before and after.
func TestLanesRunSideBySide(t *testing.T) {
	for name, failing := range map[string]string{"both end well": "", "the first fails": "a", "the second fails": "b"} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			begun := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
			other := map[string]string{"a": "b", "b": "a"}
			r := runner{out: &out, folder: t.TempDir(), every: time.Millisecond}
			r.suite = func(s suite, output *os.File) (time.Duration, error) {
				if s.target == "c" {
					return 0, nil
				}
				if s.yields != (s.target == "b") {
					t.Errorf("%s yields: %v", s.target, s.yields)
				}
				fmt.Fprintf(output, "%s begins\n", s.target)
				close(begun[s.target])
				select {
				case <-begun[other[s.target]]:
				case <-time.After(time.Minute):
					t.Errorf("%s runs alone", s.target)
				}
				time.Sleep(5 * time.Millisecond) // for a line that says what runs
				fmt.Fprintf(output, "%s ends\n", s.target)
				if s.target == failing {
					return 0, errors.New("exit status 2")
				}
				return 0, nil
			}
			if ok := r.run(t.Context(), lanes([]string{"a", "-", "b", "c"})); ok != (failing == "") {
				t.Errorf("ok: %v", ok)
			}
			for _, want := range []string{"=== a\na begins\na ends\n", "=== b\nb begins\nb ends\n", "=== running: "} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in what it printed:\n%s", want, out.String())
				}
			}
		})
	}
}

func TestSignsBeginLanes(t *testing.T) {
	got := lanes(strings.Fields("a b + c - d e - + f"))
	want := [][]suite{
		{{target: "a"}, {target: "b"}}, {{target: "c"}}, {{target: "d", yields: true}, {target: "e", yields: true}},
		{{target: "f"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestOutputThatCannotBeKeptFailsTheSuite(t *testing.T) {
	var out strings.Builder
	r := runner{out: &out, folder: filepath.Join(t.TempDir(), "\x00")}
	r.suite = func(suite, *os.File) (time.Duration, error) { return 0, nil }
	if r.run(t.Context(), lanes([]string{"a"})) {
		t.Errorf("it ended well:\n%s", out.String())
	}
}

// TestSuiteOfMake runs a program in place of make: one suite ends well, one fails, one is ended by a signal.
func TestSuiteOfMake(t *testing.T) {
	program := filepath.Join(t.TempDir(), "make")
	const script = `#!/bin/sh
echo "$1, niceness $(nice)"
case $1 in
passes) for i in $(seq 20000); do :; done ;;
fails) exit 3 ;;
waits) exec sleep 60 ;;
esac
`
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	own, err := exec.Command("nice").Output()
	if err != nil {
		t.Fatal(err)
	}
	niceness, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		suite
		output, err string
	}{
		{suite{target: "passes"}, fmt.Sprintf("passes, niceness %d\n", niceness), ""},
		{suite{target: "passes", yields: true}, fmt.Sprintf("passes, niceness %d\n", min(niceness+10, 19)), ""},
		{suite{target: "fails"}, fmt.Sprintf("fails, niceness %d\n", niceness), "exit status 3"},
		{suite{target: "waits", yields: true}, fmt.Sprintf("waits, niceness %d\n", min(niceness+10, 19)),
			"signal: terminated"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		output, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		if c.target == "waits" {
			go func() {
				for text := ""; text == ""; time.Sleep(time.Millisecond) {
					data, _ := os.ReadFile(output.Name())
					text = string(data)
				}
				interrupt()
			}()
		}
		got := ""
		processor, err := c.run(ctx, program, output)
		if err != nil {
			got = err.Error()
		}
		if processor <= 0 && c.target == "passes" {
			t.Errorf("%s took %v of processor time", c.target, processor)
		}
		interrupt()
		text, err := os.ReadFile(output.Name())
		if err := errors.Join(err, output.Close()); err != nil {
			t.Fatal(err)
		}
		if got != c.err || string(text) != c.output {
			t.Errorf("%s: %q, %q, want %q, %q", c.target, got, text, c.err, c.output)
		}
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
	run := slices.DeleteFunc(strings.Fields(recipe[1]), func(arg string) bool { return !strings.HasPrefix(arg, "test-") })
	targets := regexp.MustCompile(`(?m)^(test-[a-z0-9-]+):`).FindAllStringSubmatch(string(makefile), -1)
	for _, target := range targets {
		if !slices.Contains(run, target[1]) {
			t.Errorf("make test does not run %s: %q", target[1], run)
		}
	}
	if len(targets) < 5 || len(run) != len(targets) {
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
