package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// runner runs suites and prints how they end.
type runner struct {
	out io.Writer
	// folder has the output of each suite.
	folder string
	// every is how often it says what runs.
	every time.Duration
	// suite runs one to its end, and returns how much processor time it took.
	suite func(s suite, output *os.File) (time.Duration, error)

	mu      sync.Mutex // of out and the rest
	running []begun
	summary []string
	failed  bool
	// processor is the sum of all suites that ended.
	processor time.Duration
}

// begun is a suite that runs.
type begun struct {
	target string
	at     time.Time
}

// run runs the suites of each lane one after the other, and the lanes side by side, until ctx ends. It reports whether
// all suites ended without an error.
func (r *runner) run(ctx context.Context, lanes [][]suite) (ok bool) {
	start := time.Now()
	talking, quiet := context.WithCancel(ctx)
	var talk, all sync.WaitGroup
	talk.Go(func() { r.talk(talking) })
	for _, lane := range lanes {
		all.Go(func() {
			for _, s := range lane {
				r.one(ctx, s)
			}
		})
	}
	all.Wait()
	quiet()
	talk.Wait()
	r.note("all", "", time.Since(start), r.processor)
	fmt.Fprintf(r.out, "\n%-8s %8s %10s  suite\n%s", "", "time", "processor", strings.Join(r.summary, ""))
	return !r.failed
}

// one runs a suite and prints its output.
func (r *runner) one(ctx context.Context, s suite) {
	if ctx.Err() != nil {
		r.skip(s)
		return
	}
	path := filepath.Join(r.folder, s.target+".log")
	start := r.begins(s.target, path)
	processor, err := r.logged(s, path)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = slices.DeleteFunc(r.running, func(b begun) bool { return b.target == s.target })
	fmt.Fprintf(r.out, "\n=== %s\n", s.target)
	word, took := "ok", time.Since(start)
	if err := errors.Join(err, r.print(path)); err != nil {
		word, r.failed = "FAILED", true
		fmt.Fprintf(r.out, "%s: %v\n", s.target, err)
	}
	fmt.Fprintf(r.out, "=== %s: %s after %.0fs\n", s.target, word, took.Seconds())
	r.processor += processor
	r.note(word, s.target, took, processor)
}

// logged runs a suite with its output in a file.
func (r *runner) logged(s suite, path string) (processor time.Duration, err error) {
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return 0, err
	}
	output, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	processor, err = r.suite(s, output)
	return processor, errors.Join(err, output.Close())
}

func (r *runner) print(path string) error {
	output, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(r.out, output)
	return errors.Join(err, output.Close())
}

func (r *runner) begins(target, path string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = append(r.running, begun{target, time.Now()})
	fmt.Fprintf(r.out, "=== %s begins, in %s\n", target, path)
	return r.running[len(r.running)-1].at
}

// skip notes a suite that is not run.
func (r *runner) skip(s suite) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	r.summary = append(r.summary, fmt.Sprintf("%-8s %8s %10s  %s\n", "not run", "", "", s.target))
}

// note adds a line to the summary; mu is held while suites run.
func (r *runner) note(word, target string, took, processor time.Duration) {
	line := fmt.Sprintf("%-8s %7.0fs %9.0fs  %s", word, took.Seconds(), processor.Seconds(), target)
	r.summary = append(r.summary, strings.TrimRight(line, " ")+"\n")
}

// talk says from time to time what runs.
func (r *runner) talk(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(r.every, time.Minute))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		var names []string
		for _, b := range r.running {
			names = append(names, fmt.Sprintf("%s since %.0fs", b.target, time.Since(b.at).Seconds()))
		}
		fmt.Fprintf(r.out, "=== running: %s\n", strings.Join(names, ", "))
		r.mu.Unlock()
	}
}
