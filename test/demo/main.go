//go:build unix

// Command demo shows the main jobs on real objects: a real API server and controller
// manager, a real CSI driver with its volumes on disk, and csi-reclaimer between them; then
// volume-guard beside an older API server and controller manager.
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

const usage = `Shows what csi-reclaimer and volume-guard do, on real control planes and a real CSI driver.

It starts etcd, kube-apiserver and kube-controller-manager, a CSI driver that keeps its
volumes as folders on disk, and csi-reclaimer. Then it deletes claims and
PersistentVolumes in both orders, with policy Delete and Retain, and once without
csi-reclaimer, which leaks a volume. After that it starts an older control plane, of
Kubernetes 1.30, and volume-guard: for volumes of an in-tree plugin, which are directories on
disk and leak without it, and for a claim that is deleted while a pod uses it. Then it cuts off
the node of a StatefulSet's pod, and deletes the pod by force, without volume-guard and with it;
and it has volume-guard fence such a node, which takes a minute. It has two Deployments write to a
volume that nobody attaches, without a lock and with one.
Last it scales StatefulSets whose claims are to go with their replicas.
It judges by the API server, the driver's record of calls and the disk, never by what
csi-reclaimer and volume-guard say of themselves.

It needs Go, and neither root nor containers: where it is root, and containerd, runc and
containernetworking-plugins are there, the nodes that are cut off are real, else they are played.
The first run compiles Kubernetes, in both versions, which takes minutes; later ones take
seconds. Ctrl-C ends everything at any time; nothing is left running, and all that it wrote is
removed, save for the logs when something went wrong.

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
	keep := flags.Bool("keep", false,
		"Leave csi-reclaimer, its driver and their control plane up afterwards, until Ctrl-C, and say how to inspect them.")
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

// show plays all acts and prints the verdicts. The error wraps errWrong when one of them is
// wrong and errUntidy when something is left behind. What is kept is the environment of the first act.
func show(ctx context.Context, p *printer, keep bool) (err error) {
	p.intro(scenarios(), guardScenarios(), podScenarios(), lockScenarios(), setScenarios())
	env, first := setUp(ctx, p)
	defer func() { err = errors.Join(err, env.tearDown()) }()
	defer compileAhead(ctx)()
	if first == nil {
		first = env.runScenarios(ctx)
	}
	if first != nil && ctx.Err() == nil {
		env.explain()
	}
	err = first
	if judged(err) {
		err = errors.Join(err, showGuard(ctx, p))
	}
	if judged(err) {
		err = errors.Join(err, showPods(ctx, p))
	}
	if judged(err) {
		sets := env.showSets(ctx)
		first, err = errors.Join(first, sets), errors.Join(err, sets)
	}
	if keep && ctx.Err() == nil && judged(err) {
		env.keep(ctx)
		return err
	}
	if first != nil && ctx.Err() == nil {
		env.saveLogs()
	}
	return err
}

// judged says that all scenarios so far came to a verdict, right or wrong.
func judged(err error) bool { return err == nil || errors.Is(err, errWrong) }

// showGuard is the second act, on a environment that ends with it.
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

// showPods is the third act, on an environment that ends with it.
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

// runScenarios plays the scenarios and judges them.
func (env *environment) runScenarios(ctx context.Context) error {
	var results []result
	for i, sc := range scenarios() {
		env.p.scenario(i+1, sc.title, sc.description)
		r, err := env.play(ctx, sc)
		if err != nil {
			return fmt.Errorf("scenario %q: %w", sc.title, err)
		}
		env.p.moral(r.verdict())
		results = append(results, r)
	}
	// Once more, of all: a volume that was to stay may be gone by now, a call may have been repeated.
	var verdicts []verdict
	for _, r := range results {
		if err := env.look(ctx, &r); err != nil {
			return err
		}
		verdicts = append(verdicts, r.verdict())
	}
	env.p.head("What the API server, the driver's record of calls and its disk say")
	env.p.table(1, verdicts)
	return judge(verdicts)
}

// runGuardScenarios does the same with the scenarios of the second act.
func (env *environment) runGuardScenarios(ctx context.Context) error {
	first := len(scenarios()) + 1
	var results []guardResult
	for i, sc := range guardScenarios() {
		env.p.scenario(first+i, sc.title, sc.description)
		r, err := env.playGuard(ctx, sc)
		if err != nil {
			return fmt.Errorf("scenario %q: %w", sc.title, err)
		}
		env.p.moral(r.verdict())
		results = append(results, r)
	}
	var verdicts []verdict
	for _, r := range results {
		if err := env.lookGuard(ctx, &r); err != nil {
			return err
		}
		verdicts = append(verdicts, r.verdict())
	}
	env.p.head("What the API server and the disk say")
	env.p.table(first, verdicts)
	return judge(verdicts)
}

// runPodScenarios does the same with the scenarios of the third act in which a node is cut off.
func (env *podsEnvironment) runPodScenarios(ctx context.Context) error {
	var all []staged
	for _, sc := range podScenarios() {
		all = append(all, staged{sc.title, sc.description, func(ctx context.Context) (verdict, error) {
			seen, err := env.playPods(ctx, sc)
			return sc.verdict(env.nodes, seen), err
		}})
	}
	first := len(scenarios()) + len(guardScenarios()) + 1
	return env.p.play(ctx, first, "What the API server and the volume say", all)
}

// runLockScenarios does the same with those in which two pods share a claim.
func (env *podsEnvironment) runLockScenarios(ctx context.Context) error {
	var all []staged
	for _, sc := range lockScenarios() {
		all = append(all, staged{sc.title, sc.description, func(ctx context.Context) (verdict, error) {
			seen, err := env.playLocks(ctx, sc)
			return sc.verdict(env.nodes, seen), err
		}})
	}
	first := len(scenarios()) + len(guardScenarios()) + len(podScenarios()) + 1
	return env.p.play(ctx, first, "What the API server, the volume and the plugin say", all)
}

// staged is a scenario of any act that ends with its verdict.
type staged struct {
	title, description string
	play               func(context.Context) (verdict, error)
}

// play plays scenarios, the first of which has the number first, and judges them under a head.
func (p *printer) play(ctx context.Context, first int, head string, all []staged) error {
	var verdicts []verdict
	for i, sc := range all {
		p.scenario(first+i, sc.title, sc.description)
		v, err := sc.play(ctx)
		if err != nil {
			return fmt.Errorf("scenario %q: %w", sc.title, err)
		}
		p.moral(v)
		verdicts = append(verdicts, v)
	}
	p.head(head)
	p.table(first, verdicts)
	return judge(verdicts)
}
