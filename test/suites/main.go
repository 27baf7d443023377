// Command suites runs suites of tests, each a make target, one after the other. It continues after a failure, and
// prints a table at the end: the result of each suite, its time, and its processor time.
//
//	go run ./test/suites [--times N] [--burn N] MAKE TARGET...
//
// With --times N it runs all suites N times, and counts the failed runs of each. With --burn N, N loops keep processors
// busy at the same time, so that a test that depends on time fails.
//
// The exit status is 1 unless all ended well.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

const usage = "usage: suites [--times N] [--burn N] MAKE TARGET..."

func main() { os.Exit(runMain(os.Args[1:], os.Stdout, os.Stderr)) }

func runMain(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("suites", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	times := flags.Int("times", 1, "")
	burn := flags.Int("burn", 0, "")
	if err := flags.Parse(args); err != nil || flags.NArg() < 2 || *times < 1 || *burn < 0 {
		fmt.Fprintln(stderr, usage)
		return 2
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	defer keepBusy(*burn)()
	r := runner{out: stdout, times: *times, suite: func(target string) (time.Duration, error) {
		return runTarget(signals, end, flags.Arg(0), target, stdout)
	}}
	if !r.run(ctx, flags.Args()[1:]) {
		return 1
	}
	return 0
}

// keepBusy starts loops that each keep a processor busy until stop is called.
func keepBusy(loops int) (stop func()) {
	previous := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(previous + loops) // a thread for each
	var ended atomic.Bool
	for range loops {
		go func() {
			for !ended.Load() { // and nothing else
			}
		}()
	}
	return func() {
		ended.Store(true)
		runtime.GOMAXPROCS(previous)
	}
}

// runTarget has make run a suite, and returns the processor time of all its processes. It passes each signal on to
// them, so that they clean up, and calls interrupted.
func runTarget(signals <-chan os.Signal, interrupted func(), program, target string, out io.Writer) (
	processor time.Duration, err error) {
	cmd := exec.Command(program, target)
	cmd.Stdout, cmd.Stderr = out, out
	// A group of their own: make and the go command pass no SIGTERM on to the tests.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			select {
			case s := <-signals:
				interrupted()
				if number, ok := s.(syscall.Signal); ok {
					_ = syscall.Kill(-cmd.Process.Pid, number)
				}
			case <-ended:
				return
			}
		}
	})
	err = cmd.Wait()
	close(ended)
	passing.Wait()
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

// runner runs suites and prints how they end.
type runner struct {
	out   io.Writer
	times int
	// suite runs one to its end, and returns how much processor time it took.
	suite func(target string) (time.Duration, error)
}

// outcome sums up the runs of one suite.
type outcome struct {
	runs, failed    int
	took, processor time.Duration
}

// run runs all suites, times over, until ctx ends. It reports whether all runs ended without an error.
func (r *runner) run(ctx context.Context, targets []string) (ok bool) {
	outcomes := make([]outcome, len(targets))
	for i := range r.times {
		if r.times > 1 {
			fmt.Fprintf(r.out, "=== run %d of %d\n", i+1, r.times)
		}
		for j, target := range targets {
			if ctx.Err() == nil {
				r.one(target, &outcomes[j])
			}
		}
	}
	return r.table(targets, outcomes)
}

func (r *runner) one(target string, o *outcome) {
	fmt.Fprintf(r.out, "=== %s\n", target)
	start := time.Now()
	processor, err := r.suite(target)
	took := time.Since(start)
	o.runs, o.took, o.processor = o.runs+1, o.took+took, o.processor+processor
	if err != nil {
		o.failed++
		fmt.Fprintf(r.out, "=== %s: FAILED after %.0fs: %v\n", target, took.Seconds(), err)
		return
	}
	fmt.Fprintf(r.out, "=== %s: ok after %.0fs\n", target, took.Seconds())
}

// table prints the sums, and reports whether each suite ran as often as it should, and never failed.
func (r *runner) table(targets []string, outcomes []outcome) (ok bool) {
	ok = true
	var all outcome
	fmt.Fprintf(r.out, "\n%-12s %8s %10s  suite\n", "", "time", "processor")
	for i, o := range outcomes {
		word := "ok"
		switch {
		case o.runs == 0:
			word = "not run"
		case o.failed > 0 && r.times > 1:
			word = fmt.Sprintf("FAILED %d/%d", o.failed, o.runs)
		case o.failed > 0:
			word = "FAILED"
		case r.times > 1:
			word = fmt.Sprintf("ok %d/%d", o.runs, o.runs)
		}
		fmt.Fprintf(r.out, "%-12s %7.0fs %9.0fs  %s\n", word, o.took.Seconds(), o.processor.Seconds(), targets[i])
		all.took, all.processor = all.took+o.took, all.processor+o.processor
		ok = ok && o.failed == 0 && o.runs == r.times
	}
	fmt.Fprintf(r.out, "%-12s %7.0fs %9.0fs\n", "all", all.took.Seconds(), all.processor.Seconds())
	return ok
}
