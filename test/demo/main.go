//go:build unix

// Command demo shows the main jobs on real objects: a real API server and controller
// manager, a real CSI driver with its volumes on disk, and csi-reclaimer between them. As a tour
// it shows external-provisioner in its place, and volume-guard, too.
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

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

const usage = `Shows what csi-reclaimer does, on a real control plane and a real CSI driver.

It starts etcd, kube-apiserver and Kubernetes' controllers of PVs and claims, a CSI driver
that keeps its volumes as folders on disk, and csi-reclaimer. Then it deletes claims and
PersistentVolumes in both orders, with policy Delete and Retain, and once without
csi-reclaimer, which leaks a volume.

With --tour it goes on. The stock external-provisioner is killed while it makes a volume, and
csi-reclaimer, too. A control plane of Kubernetes 1.30 has volume-guard for volumes of an in-tree
plugin, which are directories on disk and leak without it, and for a claim that is deleted while a
pod uses it. A node is cut off and its pod deleted by force, without volume-guard and with it, and
volume-guard fences such a node, which takes a minute. Two Deployments write to a volume that
nobody attaches, without a lock and with one. StatefulSets are scaled whose claims are to go with
their replicas.

It judges by the API server, the driver's record of calls and the disk, never by what
csi-reclaimer and volume-guard say of themselves.

It needs Go, and neither root nor containers: where it is root, and containerd, runc and
containernetworking-plugins are there, the nodes of the tour are real, else they are played.
The first run compiles Kubernetes, which takes minutes; later ones take seconds. The tour compiles
another version and external-provisioner, too. Ctrl-C ends everything at any time; nothing is left
running, and all that it wrote is removed, save for the logs when something went wrong.

Usage:
  go run ./test/demo [--keep | --tour] [--no-color]
  make demo [KEEP=1]
  make tour

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

// options are the flags that choose the scenarios.
type options struct{ keep, tour bool }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout *os.File, stderr io.Writer) int {
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	var o options
	flags.BoolVar(&o.keep, "keep", false, "Leave a cluster up afterwards, until Ctrl-C, with objects that wait for each "+
		"common reason, and say how to ask why.")
	flags.BoolVar(&o.tour, "tour", false, "Show everything: external-provisioner, volume-guard, nodes, fences and "+
		"StatefulSets, too.")
	noColor := flags.Bool("no-color", false, "Plain text, also on a terminal.")
	flags.Usage = func() { fmt.Fprint(stdout, usage, flags.FlagUsages(), usageEnd) }
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("argument %q is not known", flags.Arg(0))
	}
	if err == nil && o.keep && o.tour {
		err = errors.New("--keep and --tour exclude each other")
	}
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v; see --help\n", err)
		return 2
	}
	// A terminal or a pipe that closes is an interrupt too: the folders would stay otherwise.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()

	p := newPrinter(stdout, !*noColor && os.Getenv("NO_COLOR") == "" && isTerminal(stdout))
	status, line := conclude(show(ctx, p, o), ctx.Err() != nil)
	if line != "" {
		fmt.Fprintln(stderr, "demo:", line)
	}
	return status
}

// conclude returns the exit status and the last line, which may be empty.
func conclude(err error, interrupted bool) (status int, line string) {
	const asShellsHaveIt = 128 + int(syscall.SIGINT)
	switch {
	case err == nil:
		return 0, "" // also when Ctrl-C ended the kept cluster
	case errors.Is(err, errWrong) || !interrupted:
		return 1, err.Error()
	case errors.Is(err, errUntidy):
		return asShellsHaveIt, "interrupted: " + err.Error()
	}
	return asShellsHaveIt, "interrupted; everything it started has ended, and what it wrote is removed"
}

// show plays the scenarios of the demo or of the tour, and prints the verdicts. The error wraps errWrong when one of
// them is wrong and errUntidy when something is left behind.
func show(ctx context.Context, p *printer, o options) (err error) {
	if o.tour {
		p.intro(append([]act{firstAct()}, laterActs()...), tourCosts)
	} else {
		p.intro([]act{firstAct()}, demoCosts)
	}
	// Four scenarios need no other controllers. Compiling all of them takes a fifth longer.
	env, err := setUp(ctx, p, controlplane.Options{Lean: !o.tour && !o.keep})
	defer func() { err = errors.Join(err, env.tearDown()) }()
	if err == nil {
		err = env.runScenarios(ctx)
	}
	if err != nil && ctx.Err() == nil {
		env.explain()
	}
	switch {
	case !judged(err):
	case o.tour:
		err = env.goOn(ctx, err)
	case o.keep:
		err = errors.Join(err, env.keep(ctx))
	default:
		p.more()
	}
	if err != nil && ctx.Err() == nil {
		env.saveLogs()
	}
	return err
}

// goOn plays the further acts of the tour, until one comes to no verdict.
func (env *environment) goOn(ctx context.Context, err error) error {
	for _, next := range []func(context.Context) error{
		env.showCrashes,
		func(ctx context.Context) error { return showGuard(ctx, env.p) },
		func(ctx context.Context) error { return showPods(ctx, env.p) },
		env.showSets,
	} {
		if judged(err) {
			err = errors.Join(err, next(ctx))
		}
	}
	return err
}

// judged says that all scenarios so far came to a verdict, right or wrong.
func judged(err error) bool { return err == nil || errors.Is(err, errWrong) }

// showGuard is the third act, on an environment that ends with it.
func showGuard(ctx context.Context, p *printer) (err error) {
	env, err := setUpGuard(ctx, p)
	defer func() { err = errors.Join(err, env.tearDown()) }()
	if err == nil {
		err = env.runGuardScenarios(ctx)
	}
	if err != nil && ctx.Err() == nil {
		env.explain()
		env.saveLogs()
	}
	return err
}

// showPods is the fourth act, on an environment that ends with it.
func showPods(ctx context.Context, p *printer) (err error) {
	env, err := setUpPods(ctx, p)
	defer func() { err = errors.Join(err, env.tearDown()) }()
	if err == nil {
		err = env.runPodScenarios(ctx)
		if judged(err) {
			err = errors.Join(err, env.runLockScenarios(ctx))
		}
	}
	if err != nil && ctx.Err() == nil {
		env.explain()
		env.saveLogs()
	}
	return err
}

// runScenarios plays the scenarios of the first act.
func (env *environment) runScenarios(ctx context.Context) error {
	var all []staged
	for _, sc := range scenarios() {
		var r result
		all = append(all, staged{title: sc.title, description: sc.description,
			play: func(ctx context.Context) (_ verdict, err error) {
				r, err = env.play(ctx, sc)
				return r.verdict(), err
			},
			again: func(ctx context.Context) (verdict, error) {
				err := env.look(ctx, &r)
				return r.verdict(), err
			}})
	}
	return env.p.play(ctx, "What the API server, the driver's record of calls and its disk say", all)
}

// runGuardScenarios does the same with the scenarios of volume-guard alone.
func (env *environment) runGuardScenarios(ctx context.Context) error {
	var all []staged
	for _, sc := range guardScenarios() {
		var r guardResult
		all = append(all, staged{title: sc.title, description: sc.description,
			play: func(ctx context.Context) (_ verdict, err error) {
				r, err = env.playGuard(ctx, sc)
				return r.verdict(), err
			},
			again: func(ctx context.Context) (verdict, error) {
				err := env.lookGuard(ctx, &r)
				return r.verdict(), err
			}})
	}
	return env.p.play(ctx, "What the API server and the disk say", all)
}

// runPodScenarios does the same with the scenarios in which a node is cut off.
func (env *podsEnvironment) runPodScenarios(ctx context.Context) error {
	var all []staged
	for _, sc := range podScenarios() {
		all = append(all, staged{title: sc.title, description: sc.description,
			play: func(ctx context.Context) (verdict, error) {
				seen, err := env.playPods(ctx, sc)
				return sc.verdict(env.nodes, seen), err
			}})
	}
	return env.p.play(ctx, "What the API server and the volume say", all)
}

// runLockScenarios does the same with those in which two pods share a claim.
func (env *podsEnvironment) runLockScenarios(ctx context.Context) error {
	var all []staged
	for _, sc := range lockScenarios() {
		all = append(all, staged{title: sc.title, description: sc.description,
			play: func(ctx context.Context) (verdict, error) {
				seen, err := env.playLocks(ctx, sc)
				return sc.verdict(env.nodes, seen), err
			}})
	}
	return env.p.play(ctx, "What the API server, the volume and the plugin say", all)
}

// staged is a scenario of any act that ends with its verdict.
type staged struct {
	title, description string
	play               func(context.Context) (verdict, error)
	// again looks once more, after all others: a volume that was to stay may be gone by then, a call may have been
	// repeated. Optional.
	again func(context.Context) (verdict, error)
}

// play plays scenarios, and judges them under a head.
func (p *printer) play(ctx context.Context, head string, all []staged) error {
	var verdicts []verdict
	for _, sc := range all {
		p.scenario(sc.title, sc.description)
		v, err := sc.play(ctx)
		if err != nil {
			return fmt.Errorf("scenario %q: %w", sc.title, err)
		}
		p.moral(v)
		verdicts = append(verdicts, v)
	}
	for i, sc := range all {
		if sc.again == nil {
			continue
		}
		var err error
		if verdicts[i], err = sc.again(ctx); err != nil {
			return fmt.Errorf("scenario %q: %w", sc.title, err)
		}
	}
	p.head(head)
	p.table(verdicts)
	return judge(verdicts)
}
