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
	// suite runs one to its end.
	suite func(s suite, output *os.File) error

	mu      sync.Mutex // of out and the rest
	running []begun
	summary []string
	failed  bool
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
	fmt.Fprintf(r.out, "\n%s%-8s %7.0fs\n", strings.Join(r.summary, ""), "all", time.Since(start).Seconds())
	return !r.failed
}

// one runs a suite and prints its output.
func (r *runner) one(ctx context.Context, s suite) {
	if ctx.Err() != nil {
		r.ended("not run", s.target, 0)
		return
	}
	path := filepath.Join(r.folder, s.target+".log")
	start := r.begins(s.target, path)
	err := r.logged(s, path)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = slices.DeleteFunc(r.running, func(b begun) bool { return b.target == s.target })
	fmt.Fprintf(r.out, "\n=== %s\n", s.target)
	word, took := "ok", time.Since(start)
	if err := errors.Join(err, r.print(path)); err != nil {
		word = "FAILED"
		fmt.Fprintf(r.out, "%s: %v\n", s.target, err)
	}
	fmt.Fprintf(r.out, "=== %s: %s after %.0fs\n", s.target, word, took.Seconds())
	r.note(word, s.target, took)
}

// logged runs a suite with its output in a file.
func (r *runner) logged(s suite, path string) (err error) {
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return err
	}
	output, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.suite(s, output), output.Close())
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

func (r *runner) ended(word, target string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(word, target, took)
}

// note adds a line to the summary; mu is held.
func (r *runner) note(word, target string, took time.Duration) {
	seconds := ""
	if took > 0 {
		seconds = fmt.Sprintf("%.0fs", took.Seconds())
	}
	r.failed = r.failed || word != "ok"
	r.summary = append(r.summary, fmt.Sprintf("%-8s %8s  %s\n", word, seconds, target))
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
