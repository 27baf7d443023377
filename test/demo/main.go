//go:build unix

// Command demo shows the main job on real objects: a real API server and controller
// manager, a real CSI driver with its volumes on disk, and csi-reclaimer between them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

const usage = `Shows what csi-reclaimer does, on a real control plane and a real CSI driver.

It starts etcd, kube-apiserver and kube-controller-manager (1.36), a CSI driver that keeps
its volumes as folders on disk, and csi-reclaimer. Then it deletes claims and
PersistentVolumes in both orders, and judges by the driver's disk and its record of calls.

Usage:
  demo [--keep] [--no-color]

Flags:
`

// interrupted is the exit status of a program that Ctrl-C ended, as shells have it.
const interrupted = 130

func main() { os.Exit(run()) }

func run() int {
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	keep := flags.Bool("keep", false, "Leave everything up afterwards, until Ctrl-C.")
	noColor := flags.Bool("no-color", false, "Plain text, also on a terminal.")
	flags.Usage = func() { fmt.Print(usage, flags.FlagUsages()) }
	if err := flags.Parse(os.Args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0
		}
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	p := newPrinter(os.Stdout, !*noColor && isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "")
	err := show(ctx, p, *keep)
	switch {
	case ctx.Err() != nil && !errors.Is(err, errWrong):
		if *keep && err == nil {
			return 0 // Ctrl-C is how a demo that is kept ends.
		}
		fmt.Fprintln(os.Stderr, "demo: interrupted; everything it started has ended")
		return interrupted
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}

// show plays all scenarios and prints the verdicts. The error wraps errWrong when one of
// them is wrong.
func show(ctx context.Context, p *printer, keep bool) (err error) {
	p.head("csi-reclaimer: delete a volume when, and only when, its reclaim policy says so")
	p.say("A real API server and controller manager, a real CSI driver with its volumes on disk.")
	p.say("The first run compiles Kubernetes, which takes some minutes; later ones take seconds.")
	s, err := raise(ctx, p)
	if s != nil {
		defer func() { err = errors.Join(err, s.lower()) }()
	}
	if err != nil {
		return err
	}
	var results []result
	for i, scene := range scenes() {
		p.head(fmt.Sprintf("%d. %s", i+1, scene.title))
		p.say(scene.story)
		outcome, err := s.play(ctx, scene)
		if err != nil {
			return fmt.Errorf("scenario %q: %w\n%s", scene.title, err, s.evidence())
		}
		p.say(scene.moral)
		results = append(results, result{scene: scene, seen: outcome})
	}
	p.head("What the driver's disk and its record of calls say")
	p.table(results)
	verdict := judge(results)
	if verdict != nil {
		verdict = fmt.Errorf("%w\n%s", verdict, s.evidence())
	}
	if keep {
		return errors.Join(verdict, s.keep(ctx))
	}
	return verdict
}
