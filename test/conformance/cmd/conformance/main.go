//go:build unix

// Command conformance runs specs of Kubernetes' own end-to-end suite with stock parts, and with ours in their place. It
// writes the page of the results once it has run all suites. An interrupted run goes on where it was, at the same
// commit. The exit status is 1 if a spec passes with stock parts alone.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/test/conformance"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

const usage = "usage: conformance [--only REGEXP] [--fresh]"

func main() { os.Exit(runMain(os.Args[1:], os.Stdout, os.Stderr)) }

func runMain(args []string, stdout *os.File, stderr io.Writer) int {
	flags := pflag.NewFlagSet("conformance", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "run the suites whose names match, and write no page")
	fresh := flags.Bool("fresh", false, "take no results of an earlier run")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		fmt.Fprintln(stderr, usage)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	worse, err := run(ctx, *only, *fresh, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "conformance:", err)
		return 2
	}
	if worse {
		return 1
	}
	return 0
}

// run reports whether a spec passes with stock parts alone.
func run(ctx context.Context, only string, fresh bool, out *os.File) (worse bool, err error) {
	root, err := process.ModuleRoot()
	if err != nil {
		return false, err
	}
	store := filepath.Join(root, ".build", "conformance")
	if fresh {
		if err := os.RemoveAll(store); err != nil {
			return false, err
		}
	}
	selected, err := regexp.Compile("(?i)" + only)
	if err != nil {
		return false, err
	}
	var suites []conformance.Suite
	for _, suite := range conformance.Suites() {
		if selected.MatchString(suite.Name) {
			suites = append(suites, suite)
		}
	}
	if len(suites) == 0 {
		return false, errors.New("no suite has such a name")
	}
	results, err := conformance.Run(ctx, conformance.Options{Suites: suites, Store: conformance.Store(store), Progress: out,
		Line: conformance.NewLine(out, isTerminal(out))})
	if err != nil {
		return false, err
	}
	page := filepath.Join(root, conformance.PagePath)
	if only != "" {
		page = filepath.Join(store, "some.md")
	}
	if err := os.WriteFile(page, []byte(conformance.Page(results)), 0o644); err != nil {
		return false, err
	}
	return say(results, page, out), nil
}

// say prints how the suites ended, and reports whether a spec passes with stock parts alone.
func say(results []conformance.Result, page string, out io.Writer) (worse bool) {
	for _, r := range results {
		_, _ = fmt.Fprintf(out, "%-45s %-6s %4d passed %4d failed %4d left out %6ds\n", r.Suite.Name, r.Parts,
			r.Count(conformance.Passed), r.Count(conformance.Failed), r.Count(conformance.LeftOut), r.Seconds)
	}
	for _, c := range conformance.Compare(results) {
		if c.Regression() {
			worse = true
			_, _ = fmt.Fprintf(out, "passes with stock parts alone: %s: %s\n", c.Spec, c.Ours.Reason)
		}
	}
	_, _ = fmt.Fprintf(out, "written: %s\n", page)
	return worse
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
