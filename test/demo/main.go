//go:build unix

// Command demo shows the main job on real objects: a real API server and controller
// manager, a real CSI driver with its volumes on disk, and csi-reclaimer between them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

const usage = `Shows what csi-reclaimer does, on a real control plane and a real CSI driver.

It starts etcd, kube-apiserver and kube-controller-manager, a CSI driver that keeps its
volumes as folders on disk, and csi-reclaimer. Then it deletes claims and
PersistentVolumes in both orders, with policy Delete and Retain, and once without
csi-reclaimer, which leaks a volume. It judges by the API server, the driver's record of
calls and the driver's disk, never by what csi-reclaimer says of itself.

It needs Go, and neither root nor containers. The first run compiles Kubernetes, which
takes minutes; later ones take seconds. Ctrl-C ends everything at any time; nothing is left
running, and all that it wrote is removed, save for the logs when something went wrong.

Usage:
  go run ./test/demo [--keep] [--no-color]
  make demo [KEEP=1]

Flags:
`

const usageEnd = `
Exit status:
  0    every scenario ended as it should
  1    one did not, or something could not be started; the reason is the last line
  2    a flag or argument that is not known
  130  interrupted before the verdicts

Colour is used on a terminal only, and not where NO_COLOR is set (https://no-color.org).
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout *os.File, stderr io.Writer) int {
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	keep := flags.Bool("keep", false, "Leave everything up afterwards, until Ctrl-C, and say how to look around.")
	noColor := flags.Bool("no-color", false, "Plain text, also on a terminal.")
	flags.Usage = func() { fmt.Fprint(stdout, usage, flags.FlagUsages(), usageEnd) }
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("argument %q is not known", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v; see --help\n", err)
		return 2
	}
	// A terminal or a pipe that closes is an interrupt too: the folders would stay otherwise.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()

	p := newPrinter(stdout, !*noColor && os.Getenv("NO_COLOR") == "" && isTerminal(stdout))
	status, line := conclude(show(ctx, p, *keep), ctx.Err() != nil)
	if line != "" {
		fmt.Fprintln(stderr, "demo:", line)
	}
	return status
}

// conclude gives the exit status and the last line, if there is something to say.
func conclude(err error, interrupted bool) (status int, line string) {
	const asShellsHaveIt = 128 + int(syscall.SIGINT)
	switch {
	case err == nil:
		return 0, "" // also when Ctrl-C ended what was kept
	case errors.Is(err, errWrong) || !interrupted:
		return 1, err.Error()
	case errors.Is(err, errUntidy):
		return asShellsHaveIt, "interrupted: " + err.Error()
	}
	return asShellsHaveIt, "interrupted; everything it started has ended, and what it wrote is removed"
}

// show plays all scenarios and prints the verdicts. The error wraps errWrong when one of
// them is wrong and errUntidy when something is left behind.
func show(ctx context.Context, p *printer, keep bool) (err error) {
	p.intro(scenes())
	s, err := raise(ctx, p)
	defer func() { err = errors.Join(err, s.lower()) }()
	if err == nil {
		err = s.perform(ctx)
	}
	if err != nil && ctx.Err() == nil {
		s.explain()
	}
	if keep && ctx.Err() == nil && (err == nil || errors.Is(err, errWrong)) {
		return errors.Join(err, s.keep(ctx))
	}
	if err != nil && ctx.Err() == nil {
		s.saveLogs()
	}
	return err
}

// perform plays the scenes and judges them.
func (s *stage) perform(ctx context.Context) error {
	var results []result
	for i, sc := range scenes() {
		s.p.head(fmt.Sprintf("%d. %s", i+1, sc.title))
		s.p.say(sc.story)
		r, err := s.play(ctx, sc)
		if err != nil {
			return fmt.Errorf("scenario %q: %w", sc.title, err)
		}
		s.p.moral(r)
		results = append(results, r)
	}
	// Once more, of all: a volume that was to stay may be gone by now, a call may have been repeated.
	for i := range results {
		if err := s.look(ctx, &results[i]); err != nil {
			return err
		}
	}
	s.p.head("What the API server, the driver's record of calls and its disk say")
	s.p.table(results)
	return judge(results)
}
