//go:build unix

// Command bench measures csi-reclaimer beside a reference, prints a line for each figure and a table, and writes
// report.json and report.md. See package bench.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "fewer volumes, one run each")
	only := flags.String("only", "",
		"families, figures or beginnings of figures' names, separated by commas (default: all); --list shows them")
	list := flags.Bool("list", false, "list the families with their figures, and measure nothing")
	judge := flags.Bool("judge", false, "hold the figures of the report against the goals of now, and measure nothing")
	runs := flags.Int("runs", 0, "runs of each subject (default: 3, with --quick 1)")
	seed := flags.Uint64("seed", 0, "repeats the order of deletions of another run (default: a random one)")
	profiles := flags.String("profiles", "",
		"folder for profiles of csi-reclaimer's memory at each size of the scaling curve (default: none are taken)")
	out := flags.String("out", "",
		"folder of the report: figures that are in it and are not measured now are kept (default: test/bench, with "+
			"--quick .build/bench)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		bench.List(os.Stdout)
		return nil
	}
	dir, err := folder(*out, *quick)
	if err != nil {
		return err
	}
	figures, err := report.Read(dir, bench.Names())
	if err != nil {
		return err
	}
	if figures.Judge(bench.Goals()); *judge {
		return figures.Write(dir)
	}
	versions, err := report.TheseVersions(ctx)
	if err != nil {
		return err
	}
	o := bench.Options{Quick: *quick, Runs: *runs, Seed: *seed, Profiles: *profiles, Progress: os.Stderr}
	if *only != "" {
		o.Only = strings.Split(*only, ",")
	}
	if o.Seed == 0 {
		o.Seed = uint64(rand.Uint32())
	}
	fmt.Printf("seed %d\n", o.Seed)
	o.Measured = func(f *report.Figure) {
		fmt.Println(f.Line())
		figures.Add(f)
	}
	_, err = bench.Run(ctx, o, versions)
	// Figures from before an error or an interrupt took long, so they are kept.
	err = errors.Join(context.Cause(ctx), err, figures.Write(dir))
	if err != nil {
		return err
	}
	return figures.Markdown(os.Stdout)
}

// folder returns the folder of the report. Figures with few volumes do not replace the kept report.
func folder(given string, quick bool) (string, error) {
	if given != "" {
		return given, nil
	}
	root, err := process.ModuleRoot()
	if err != nil {
		return "", err
	}
	if quick {
		return filepath.Join(root, ".build", "bench"), nil
	}
	return filepath.Join(root, "test", "bench"), nil
}
