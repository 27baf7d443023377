package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
)

const usage = `Remove the guards of what decides, deletes, releases and takes over, one at a time. A test must notice each.

  mutation [--only REGEXP] [--parallel N] [--quick] [--model alive|all|never] [--list]

To be run in the root of the repository. The exit status is 1 if a mutant lives.

`

// options are the settings of the command line.
type options struct {
	only, model string
	parallel    int
	list, quick bool
}

// When the model tries a mutant.
const (
	modelAlive = "alive"
	modelAll   = "all"
	modelNever = "never"
)

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "try only mutants whose name matches: package:function/change")
	flag.IntVar(&o.parallel, "parallel", 2, "try this many mutants at a time")
	flag.StringVar(&o.model, "model", modelAlive,
		"have the model try the mutants that no test notices (alive), all that are in its packages (all) or none (never)")
	flag.BoolVar(&o.quick, "quick", false, "leave out the tests that go through all combinations of facts")
	flag.BoolVar(&o.list, "list", false, "print the mutants and try none")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage); flag.PrintDefaults() }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	alive, err := run(ctx, o)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(2)
	case alive > 0:
		os.Exit(1)
	}
}

// run tries the mutants and prints their fates. alive is the number of surviving mutants.
func run(ctx context.Context, o options) (alive int, err error) {
	if !slices.Contains([]string{modelAlive, modelAll, modelNever}, o.model) {
		return 0, fmt.Errorf("--model %q is not %s, %s or %s", o.model, modelAlive, modelAll, modelNever)
	}
	fmt.Fprintln(os.Stderr, "mutants: reading the packages")
	b, err := generate(ctx, ".", scopes, edits)
	if err != nil {
		return 0, err
	}
	excused, err := excuse(b.mutants, exceptions)
	if err != nil {
		return 0, err
	}
	chosen, err := choose(b.mutants, excused, o)
	if err != nil {
		return 0, err
	}
	if o.list {
		for _, m := range chosen {
			fmt.Println(m.name())
		}
		return 0, nil
	}
	scratch, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	r := &runner{build: b, model: &model{}, scratch: scratch, options: o, suites: map[[2]string]*suite{}}
	if r.overlay, err = b.overlay(scratch); err != nil {
		return 0, err
	}
	r.chosen = len(chosen)
	err = r.try(ctx, chosen)
	fmt.Printf("mutants: tried=%d killed=%d alive=%d\n", r.tried, r.tried-r.alive, r.alive)
	return r.alive, err
}

// excuse returns the mutants that have an exception. Each exception must have its mutant.
func excuse(all []*mutant, exceptions []exception) (map[*mutant]bool, error) {
	excused := map[*mutant]bool{}
	var stale error
	for _, e := range exceptions {
		found := false
		for _, m := range all {
			if m.name() == e.name || m.pkg+":*/"+m.what == e.name {
				excused[m], found = true, true
			}
		}
		if !found {
			stale = errors.Join(stale, fmt.Errorf("exception %q: there is no such mutant", e.name))
		}
	}
	return excused, stale
}

// choose returns the mutants that are to be tried.
func choose(all []*mutant, excused map[*mutant]bool, o options) (chosen []*mutant, err error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	for _, m := range all {
		if !excused[m] && only.MatchString(m.name()) {
			chosen = append(chosen, m)
		}
	}
	return chosen, nil
}

// runner tries mutants.
type runner struct {
	build            *build
	overlay, scratch string
	options          options
	model            *model
	// suites are the compiled suites, by their folder and live tests.
	suites map[[2]string]*suite

	mu           sync.Mutex
	tried, alive int
	// chosen are how many are to be tried.
	chosen int
}

// try tries mutants, package by package, and prints a line for each.
func (r *runner) try(ctx context.Context, chosen []*mutant) error {
	type key struct{ folder, also, live string }
	var order []key
	groups := map[key][]*mutant{}
	for _, m := range chosen {
		k := key{m.pkg, m.scope.also, m.scope.live}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], m)
	}
	for _, k := range order {
		var suites []*suite
		for _, folder := range append([]string{k.folder}, strings.Fields(k.also)...) {
			fmt.Fprintf(os.Stderr, "%s: compiling and running the tests of %s\n", k.folder, folder)
			s, err := r.suiteOf(ctx, folder, k.live)
			if err != nil {
				return err
			}
			suites = append(suites, s)
			fmt.Printf("%s: %d mutants, tests of %s take %.1fs\n", k.folder, len(groups[k]), folder, s.took.Seconds())
		}
		if err := r.tryAll(ctx, suites, groups[k]); err != nil {
			return err
		}
	}
	return nil
}

// tryAll tries mutants with the tests of some suites, some mutants at a time.
func (r *runner) tryAll(ctx context.Context, suites []*suite, group []*mutant) error {
	work := make(chan *mutant)
	failures := make([]error, max(1, r.options.parallel))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i := range failures {
		wg.Go(func() {
			for m := range work {
				if failures[i] == nil {
					if failures[i] = r.tryOne(ctx, suites, m); failures[i] != nil {
						cancel()
					}
				}
			}
		})
	}
	for _, m := range group {
		work <- m
	}
	close(work)
	wg.Wait()
	return errors.Join(failures...)
}

// tryOne tries one mutant: the tests first, the model where they do not notice.
func (r *runner) tryOne(ctx context.Context, suites []*suite, m *mutant) error {
	by, reached := "", false
	for _, s := range suites {
		var err error
		if by, err = s.kills(ctx, r, m); err != nil {
			return err
		}
		if reached = reached || s.reached[m.number]; by != "" {
			break
		}
	}
	if o := r.options.model; o == modelAll || o == modelAlive && by == "" {
		world, err := r.askModel(ctx, m)
		if err != nil {
			return err
		}
		by = strings.Trim(by+", "+world, ", ")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried++
	result := "killed"
	if by == "" {
		r.alive++
		result, by = "ALIVE", r.asked(suites, reached)
	}
	fmt.Printf("%-6s  %s  (%s, %d of %d: %s)\n", result, m.name(), m.at, r.tried, r.chosen, by)
	return nil
}

// asked describes the packages whose tests did not notice the mutant, and the omitted tests. reached means that a test
// executes the code at all.
func (r *runner) asked(suites []*suite, reached bool) string {
	said := "no test fails in"
	if !reached {
		said = "no test gets there in"
	}
	for i, s := range suites {
		said += strings.Repeat(",", min(i, 1)) + " " + s.name
		if s.live != "" {
			said += " -run " + s.live
		}
	}
	if skip := r.skipped(); skip != "" {
		said += " -skip " + skip
	}
	return said
}
