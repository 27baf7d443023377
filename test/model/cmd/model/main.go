// Command model explores the worlds of test/model to exhaustion and prints what it found.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/fencepolicy"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/intree"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/joint"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/statefulset"
)

const usage = `Explore what can happen while csi-reclaimer and volume-guard are at work, breadth first, and judge each step.

  model [--world NAME] [--deep] [--max-states N] [--stories DIR] [--list]

The exit status is 1 if a promise is broken, a state is stuck, or a world was not exhausted.
A promise that is broken is shown as a numbered story, the shortest there is; with --stories that of
a volume's deletion is also written as a scenario for test/faults.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout))
}

type options struct {
	world, stories string
	deep, list     bool
	maxStates      int
}

func run(ctx context.Context, args []string, out io.Writer) int {
	var o options
	flags := flag.NewFlagSet("model", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	flags.StringVar(&o.world, "world", "", "explore only the world of this name")
	flags.BoolVar(&o.deep, "deep", false, "explore the larger worlds instead")
	flags.IntVar(&o.maxStates, "max-states", 0,
		"end a world after this many states, which is not exhausted then (default no such end)")
	flags.StringVar(&o.stories, "stories", "", "write each violation as a scenario into this folder")
	flags.BoolVar(&o.list, "list", false, "print the worlds and explore none")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	worlds := slices.DeleteFunc(all(), func(w search.World) bool {
		is := w.GetPurpose()
		return o.world != is.Name && (o.world != "" || is.Deep != o.deep)
	})
	switch {
	case len(worlds) == 0:
		fmt.Fprintf(out, "there is no world %q; see --list\n", o.world)
		return 2
	case o.list:
		for _, w := range worlds {
			is := w.GetPurpose()
			fmt.Fprintf(out, "%s: %s\n", is.Name, is.About)
			if len(is.Constants) > 0 {
				fmt.Fprintf(out, "    It holds constant: %s.\n", strings.Join(is.Constants, "; "))
			}
		}
		return 0
	}
	// States are many and live long: collecting garbage seldom is faster by a third.
	debug.SetGCPercent(400)
	return explore(ctx, worlds, o, out)
}

// all returns the worlds in which volumes are made, those of the in-flight log, then those in which volumes are
// deleted, those of in-tree plugins, of pods that are held, of the claims of StatefulSets, of the policies that have
// nodes fenced, of these nodes, of the locks of claims, and of pods, nodes and locks beside each other.
func all() []search.World {
	return slices.Concat(search.All(provision.Worlds()), search.All(inflight.Worlds()), search.All(reclaim.Worlds()),
		search.All(intree.Worlds()), search.All(podsafety.Worlds()), search.All(statefulset.Worlds()),
		search.All(fencepolicy.Worlds()), search.All(fencing.Worlds()), search.All(singlenode.Worlds()),
		search.All(joint.Worlds()))
}

func explore(ctx context.Context, worlds []search.World, o options, out io.Writer) int {
	var total search.Result
	total.Exhausted = true
	table := &strings.Builder{}
	rows := tabwriter.NewWriter(table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "world\tstates\tdepth\ttime\tviolations\tstuck\texhausted\twhat is in it")
	for _, w := range worlds {
		if ctx.Err() != nil {
			total.Exhausted = false
			break
		}
		name := w.GetPurpose().Name
		r := search.Explore(ctx, w, search.Options{MaxStates: o.maxStates, Progress: func(states, depth int) {
			fmt.Fprintf(os.Stderr, "\r%-30s %10d states, depth %d ", name, states, depth)
		}})
		fmt.Fprint(os.Stderr, "\r", strings.Repeat(" ", 72), "\r")
		fmt.Fprintf(rows, "%s\t%d\t%d\t%v\t%d\t%d\t%v\t%s\n", name, r.States, r.Depth, r.Took.Round(100*time.Millisecond),
			len(r.Violations), r.Stuck, r.Exhausted, search.Bounds(w))
		total.States += r.States
		total.Stuck += r.Stuck
		total.Exhausted = total.Exhausted && r.Exhausted
		total.Violations = append(total.Violations, r.Violations...)
		if err := tell(w, r, o.stories, out); err != nil {
			fmt.Fprintln(out, err)
			return 2
		}
	}
	_ = rows.Flush()
	fmt.Fprint(out, table.String())
	fmt.Fprintf(out, "model: states=%d violations=%d stuck=%d exhausted=%v\n", total.States, len(total.Violations),
		total.Stuck, total.Exhausted)
	if len(total.Violations) > 0 || total.Stuck > 0 || !total.Exhausted && o.maxStates == 0 {
		return 1
	}
	return 0
}

// tell prints what broke a promise, and writes it down for test/faults, which can play what happens
// to PVs.
func tell(w search.World, r search.Result, folder string, out io.Writer) error {
	reclaims, _ := w.(*reclaim.World)
	world := w.GetPurpose().Name
	for i, f := range r.Findings() {
		fmt.Fprintf(out, "\nworld %q: %s\n", world, f.Promise)
		for n, line := range f.Trace {
			fmt.Fprintf(out, "%4d. %s\n", n+1, line)
		}
		fmt.Fprintln(out)
		if folder == "" || reclaims == nil {
			continue
		}
		title := fmt.Sprintf("model-%s-%d", strings.ReplaceAll(world, " ", "-"), i+1)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		name := filepath.Join(folder, title+".yaml")
		if err := os.WriteFile(name, reclaims.Scenario(f, title), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "written to %s\n", name)
	}
	return nil
}
