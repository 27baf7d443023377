package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

func TestRunContinuesAfterFailedSuite(t *testing.T) {
	for name, c := range map[string]struct {
		times                int
		failing, interrupted string
		ok                   bool
		ran                  string
		summary              []string
	}{
		"all end well":         {1, "", "", true, "a b c", []string{"ok a", "ok b", "ok c"}},
		"the first fails":      {1, "a", "", false, "a b c", []string{"FAILED a", "ok b", "ok c"}},
		"the last fails":       {1, "c", "", false, "a b c", []string{"ok a", "ok b", "FAILED c"}},
		"one is interrupted":   {1, "b", "b", false, "a b", []string{"ok a", "FAILED b", "not run c"}},
		"it is ended in a gap": {1, "", "b", false, "a b", []string{"ok a", "ok b", "not run c"}},
		"often, all well":      {2, "", "", true, "a b c a b c", []string{"ok 2/2 a", "ok 2/2 b", "ok 2/2 c"}},
		"often, one fails":     {2, "b", "", false, "a b c a b c", []string{"ok 2/2 a", "FAILED 2/2 b", "ok 2/2 c"}},
		"often, interrupted":   {2, "", "c", false, "a b c", []string{"ok 1/1 a", "ok 1/1 b", "ok 1/1 c"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var out strings.Builder
			var ran []string
			r := runner{out: &out, times: c.times, suite: func(target string) (time.Duration, error) {
				ran = append(ran, target)
				if target == c.interrupted {
					interrupt()
				}
				if target == c.failing {
					return 2 * time.Second, errors.New("exit status 2")
				}
				return 2 * time.Second, nil
			}}
			ok := r.run(ctx, []string{"a", "b", "c"})
			_, table, _ := strings.Cut(out.String(), "processor  suite\n")
			var summary []string
			for line := range strings.Lines(table) {
				summary = append(summary, regexp.MustCompile(` +\d+s +\d+s *`).ReplaceAllString(strings.TrimSpace(line), " "))
			}
			want := append(slices.Clone(c.summary), "all ")
			if ok != c.ok || strings.Join(ran, " ") != c.ran || !slices.Equal(summary, want) ||
				!strings.Contains(table, fmt.Sprintf(" %ds\n", 2*len(ran))) {
				t.Errorf("ok %v, ran %q, and printed:\n%s", ok, ran, out.String())
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"make"}, {"--times=0", "make", "a"}, {"--burn=-1", "make", "a"}, {"--of", "make",
		"a"}} {
		var stdout, stderr strings.Builder
		if status := runMain(args, &stdout, &stderr); status != 2 || stderr.String() != usage+"\n" || stdout.Len() > 0 {
			t.Errorf("%q: status %d, %q, %q", args, status, stderr.String(), stdout.String())
		}
	}
}

func TestBusyLoopsEnd(t *testing.T) {
	threads, goroutines := runtime.GOMAXPROCS(0), runtime.NumGoroutine()
	stop := keepBusy(2)
	if got := runtime.GOMAXPROCS(0); got != threads+2 {
		t.Errorf("%d threads run beside each other, want %d", got, threads+2)
	}
	stop()
	for runtime.NumGoroutine() > goroutines {
		runtime.Gosched()
	}
	if got := runtime.GOMAXPROCS(0); got != threads {
		t.Errorf("%d threads run beside each other afterwards, want %d", got, threads)
	}
}

// TestSuiteOfMake runs a program in place of make: one suite passes, one fails, and a signal ends two, one of which has
// a process that outlives make. A process that is left keeps the output open, so that the test does not end.
func TestSuiteOfMake(t *testing.T) {
	program := filepath.Join(t.TempDir(), "make")
	const script = `#!/bin/sh
case $1 in
leaves) sleep 600 & ;;
esac
echo "$1"
case $1 in
leaves) wait ;;
passes) for i in $(seq 20000); do :; done ;;
fails) exit 3 ;;
waits) exec sleep 600 ;;
esac
`
	must.OK(t, os.WriteFile(program, []byte(script), 0o700))
	for target, want := range map[string]string{"passes": "", "fails": "exit status 3", "waits": "signal: terminated",
		"leaves": "signal: terminated"} {
		signals, interrupted := make(chan os.Signal, 1), false
		out := &interrupting{interrupt: func() {}}
		if strings.HasPrefix(want, "signal") {
			out.interrupt = func() { signals <- syscall.SIGTERM }
		}
		got := ""
		processor, err := runTarget(signals, func() { interrupted = true }, program, target, out)
		if err != nil {
			got = err.Error()
		}
		if processor <= 0 && target == "passes" {
			t.Errorf("%s took %v of processor time", target, processor)
		}
		if interrupted != strings.HasPrefix(want, "signal") {
			t.Errorf("%s: interrupted %v", target, interrupted)
		}
		if got != want || out.String() != target+"\n" {
			t.Errorf("%s: %q, %q, want %q", target, got, out.String(), want)
		}
	}
}

// interrupting calls interrupt when something is written to it.
type interrupting struct {
	strings.Builder
	interrupt func()
}

func (w *interrupting) Write(p []byte) (int, error) {
	defer w.interrupt()
	return w.Builder.Write(p)
}

// TestFullTestRunsEverySuite expects make test-full to run each target of the Makefile that is a suite, and the model.
// make test is to run the suites that need neither root, a browser nor a second Kubernetes.
func TestFullTestRunsEverySuite(t *testing.T) {
	root := process.RootForTest(t)
	makefile := must.Get(os.ReadFile(filepath.Join(root, "Makefile")))(t)
	list := func(variable string) []string {
		found := regexp.MustCompile(`(?m)^` + variable + ` +:= (.*)$`).FindStringSubmatch(string(makefile))
		if found == nil {
			t.Fatalf("the Makefile does not set %s", variable)
		}
		return strings.Fields(found[1])
	}
	quick := list("QUICK_SUITES")
	deep := slices.Concat(quick, list("DEEP_SUITES"))
	targets := regexp.MustCompile(`(?m)^(test-[a-z0-9-]+):[^\n]*## `).FindAllStringSubmatch(string(makefile), -1)
	notSuites := []string{"test-full", "test-race"}
	for _, target := range targets {
		if name := target[1]; !slices.Contains(deep, name) && !slices.Contains(notSuites, name) {
			t.Errorf("make test-full does not run %s", name)
		}
	}
	for _, needs := range []string{"model", "test-nodes", "test-web", "test-e2e-oldest"} {
		if slices.Contains(quick, needs) || !slices.Contains(deep, needs) {
			t.Errorf("%s: in make test %v, in make test-full %v", needs, slices.Contains(quick, needs),
				slices.Contains(deep, needs))
		}
	}
	if flakes := regexp.MustCompile(`(?m)^\t.*--burn .*$`).FindString(string(makefile)); !strings.HasSuffix(flakes,
		" $(QUICK_SUITES)") {
		t.Errorf("make flakes does not run the quick suites: %s", flakes)
	}
	if len(quick) < 5 {
		t.Errorf("make test runs %q", quick)
	}
}

// TestDecisionsStartNoGoroutine shows that the packages omitted by make test-race cannot have data races.
func TestDecisionsStartNoGoroutine(t *testing.T) {
	root := process.RootForTest(t)
	files, err := filepath.Glob(filepath.Join(root, "internal/engine/*/*.go"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files of decisions: %v", len(files), err)
	}
	for _, file := range files {
		set := token.NewFileSet()
		tree := must.Get(parser.ParseFile(set, file, nil, parser.SkipObjectResolution))(t)
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.ChanType:
				t.Errorf("%s: a decision does not run beside others; add the package to those tested with -race",
					set.Position(n.Pos()))
			}
			return true
		})
	}
}
