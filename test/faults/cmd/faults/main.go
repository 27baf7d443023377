//go:build unix

// Command faults plays stories of provisioning and deletions under faults with the real programs, and judges them: the
// sidecar killed at every moment, the kept scenarios, and random ones for a time. It exits 1 if anything was found, and
// prints how to play it again.
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
	"slices"
	"syscall"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

type options struct {
	seconds, parallel, count int
	seed                     uint64
	file                     string
	race                     bool
}

func main() { os.Exit(run()) }

func run() int {
	var o options
	flag.IntVar(&o.seconds, "seconds", 300, "for how long random scenarios are begun")
	flag.IntVar(&o.count, "count", 0, "play this many random scenarios and nothing else")
	flag.Uint64Var(&o.seed, "seed", 0,
		"seed of the first random scenario; each next one has the next seed (0: a random one)")
	flag.IntVar(&o.parallel, "parallel", 6, "how many are played at once")
	flag.StringVar(&o.file, "scenario", "", "play this file and nothing else")
	flag.BoolVar(&o.race, "race", true, "build the sidecar with the race detector")
	flag.Parse()
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := o.play(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		return 1
	}
	if found {
		return 1
	}
	return 0
}

func (o options) play(ctx context.Context) (found bool, err error) {
	var goFlags []string
	if o.race {
		goFlags = []string{"-race"}
	}
	bench, err := faults.Open(ctx, os.Stderr, goFlags...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, bench.Close()) }()
	show := newTable(bench, o.parallel)
	switch {
	case o.file != "":
		err = o.playFile(ctx, show)
	case o.count > 0:
		fmt.Printf("seed %d\n", o.seed)
		show.play(ctx, "random", o.random(time.Time{}))
	default:
		fmt.Printf("seed %d\n", o.seed)
		err = o.playAll(ctx, show)
	}
	show.print()
	return show.found > 0, errors.Join(err, context.Cause(ctx))
}

func (o options) playFile(ctx context.Context, show *table) error {
	sc, err := scenario.Read(o.file)
	if err != nil {
		return err
	}
	for _, r := range show.play(ctx, "file", each(sc)) {
		for _, note := range r.Notes {
			fmt.Println(note)
		}
	}
	return nil
}

func (o options) playAll(ctx context.Context, show *table) error {
	provision := show.play(ctx, "provisioned", each(faults.Provision()))
	undisturbed := show.play(ctx, "undisturbed", each(slices.Concat(faults.Deletions(true), faults.Lives())...))
	var meanwhile []scenario.Scenario
	for _, r := range provision {
		meanwhile = append(meanwhile, faults.Meanwhile(r, true)...)
	}
	for _, r := range show.play(ctx, "and meanwhile", each(meanwhile...)) {
		if r.Crashes != 1 {
			show.complain(r, fmt.Sprintf("%d crashes", r.Crashes))
		}
	}
	var crashes []scenario.Scenario
	ends := map[string]string{}
	for _, r := range append(undisturbed, provision...) {
		for _, sc := range faults.Crashes(r) {
			crashes = append(crashes, sc)
			ends[sc.Name] = fmt.Sprint(r.End)
		}
	}
	for _, r := range show.play(ctx, "killed at k", each(crashes...)) {
		if end := fmt.Sprint(r.End); end != ends[r.Scenario.Name] || r.Crashes != 1 {
			show.complain(r, fmt.Sprintf("it ends %s after %d crashes, undisturbed %s", end, r.Crashes, ends[r.Scenario.Name]))
		}
	}
	root, err := process.ModuleRoot()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(root, "test/faults/testdata/*.yaml"))
	if err != nil {
		return err
	}
	var kept []scenario.Scenario
	for _, file := range files {
		sc, err := scenario.Read(file)
		if err != nil {
			return err
		}
		kept = append(kept, sc)
	}
	show.play(ctx, "kept scenarios", each(kept...))
	show.play(ctx, "random", o.random(time.Now().Add(time.Duration(o.seconds)*time.Second)))
	return nil
}

// source returns scenarios, one after the other, and false at the end.
type source func() (scenario.Scenario, bool)

func each(all ...scenario.Scenario) source {
	return func() (sc scenario.Scenario, more bool) {
		if len(all) == 0 {
			return sc, false
		}
		sc, all = all[0], all[1:]
		return sc, true
	}
}

// random returns the scenarios of the seeds from the first on: until a time, or the count.
func (o options) random(until time.Time) source {
	n := 0
	return func() (sc scenario.Scenario, more bool) {
		if o.count > 0 && n >= o.count || o.count == 0 && time.Now().After(until) {
			return sc, false
		}
		n++
		return faults.Random(o.seed + uint64(n-1)), true
	}
}
