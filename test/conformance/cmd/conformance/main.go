//go:build unix

// Command conformance runs specs of Kubernetes' own end-to-end suite with stock parts, and with ours in their place.
// It writes the page of the results. An interrupted run goes on where it was, at the same commit. With a driver it
// runs the specs for this driver alone. The exit status is 1 if a spec passes with stock parts alone, and 2 if a suite
// has no result.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/test/conformance"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

const usage = "usage: conformance [--only REGEXP] [--parts stock|ours] [--fresh] [--driver FILE --manifests FOLDER] " +
	"[--images FOLDER]"

func main() { os.Exit(runMain(os.Args[1:], os.Stdout, os.Stderr)) }

func runMain(args []string, stdout *os.File, stderr io.Writer) int {
	flags := pflag.NewFlagSet("conformance", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "run the suites whose names match")
	parts := flags.String("parts", "", "run the suites with these parts alone: stock or ours")
	fresh := flags.Bool("fresh", false, "take no results of an earlier run")
	driver := flags.String("driver", "", "run the specs for the driver that this file describes")
	images := flags.String("images", "", "a folder with the images of csi-driver-host-path and node-driver-registrar")
	manifests := flags.String("manifests", "", "the folder with the manifests and the images of the driver")
	parsed := flags.Parse(args)
	chosen, known := partsOf(*parts)
	if parsed != nil || flags.NArg() > 0 || !known || (*driver == "") != (*manifests == "") {
		fmt.Fprintln(stderr, usage)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	suites, err := conformance.Suites(*images)
	if err == nil && *driver != "" {
		var suite conformance.Suite
		suite, err = conformance.VendorSuite(*driver, *manifests, *only)
		suites, *only = []conformance.Suite{suite}, ""
	}
	worse := false
	if err == nil {
		worse, err = run(ctx, suites, *only, chosen, *fresh, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "conformance:", err)
		return 2
	}
	if worse {
		return 1
	}
	return 0
}

// partsOf returns the parts of that name, all for none.
func partsOf(name string) (parts []conformance.Parts, known bool) {
	for _, p := range conformance.Both() {
		if name == "" || name == string(p) {
			parts = append(parts, p)
		}
	}
	return parts, len(parts) > 0
}

// run reports whether a spec passes with stock parts alone.
func run(ctx context.Context, all []conformance.Suite, only string, parts []conformance.Parts, fresh bool,
	out *os.File) (worse bool, err error) {
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
	for _, suite := range all {
		switch {
		case !selected.MatchString(suite.Name):
		case suite.Lacks != "":
			_, _ = fmt.Fprintf(out, "%s is not run: %s\n", suite.Name, suite.Lacks)
		default:
			suites = append(suites, suite)
		}
	}
	if len(suites) == 0 {
		return false, errors.New("no suite with such a name can be run")
	}
	o := conformance.Options{Suites: suites, Parts: parts, Store: conformance.Store(store), Progress: out,
		Line: conformance.NewLine(out, isTerminal(out))}
	results, err := conformance.Run(ctx, o)
	worse = say(results, out)
	if len(results) == 0 {
		return worse, err
	}
	page := filepath.Join(root, conformance.PagePath)
	if suites[0].Manifests != "" || results[0].OfChangedTree() {
		page = filepath.Join(store, "page.md")
	}
	return worse, errors.Join(err, write(all, o.Store, results[0].Kubernetes, page, out))
}

// write writes the page with the results of this run and of earlier ones. Those of code that is not committed are on a
// page beside the results alone.
func write(suites []conformance.Suite, store conformance.Store, kubernetes, page string, out io.Writer) error {
	results, err := store.Known(suites, kubernetes)
	if err != nil {
		return err
	}
	if filepath.Dir(page) != string(store) {
		results = slices.DeleteFunc(results, conformance.Result.OfChangedTree)
	}
	earlier, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, _ = fmt.Fprintf(out, "written: %s\n", page)
	return os.WriteFile(page, []byte(conformance.Page(suites, kubernetes, results, string(earlier))), 0o644)
}

// say prints how the suites ended, and reports whether a spec passes with stock parts alone.
func say(results []conformance.Result, out io.Writer) (worse bool) {
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
	return worse
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
