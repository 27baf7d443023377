package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// suite is the tests that are to notice the mutants of one package: a test binary with all of them compiled in.
type suite struct {
	// name is the package's folder from the root, folder the absolute one.
	name, folder, live, binary string
	// reached are the mutants that its tests reach, and took is how long all of them take.
	reached map[int]bool
	took    time.Duration

	mu sync.Mutex
	// killers are the tests that noticed a mutant, the latest first: they are asked first.
	killers []string
}

// suiteOf returns the suite of a package, which is compiled once.
func (r *runner) suiteOf(ctx context.Context, folder, live string) (s *suite, err error) {
	k := [2]string{folder, live}
	if r.suites[k] == nil {
		r.suites[k], err = r.newSuite(ctx, folder, live)
	}
	return r.suites[k], err
}

// newSuite compiles the tests, and runs them with no mutant active.
func (r *runner) newSuite(ctx context.Context, folder, live string) (*suite, error) {
	s := &suite{name: folder, folder: filepath.Join(r.build.root, folder), live: live, reached: map[int]bool{}}
	s.binary = filepath.Join(r.scratch, strings.ReplaceAll(folder, "/", "-")+live+".test")
	args := []string{"test", "-c", "-overlay", r.overlay, "-o", s.binary}
	if live != "" {
		args = append(args, "-tags", "controlplane")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+folder)...)
	cmd.Dir = r.build.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the tests of %s: %w\n%s", folder, err, out)
	}
	record := s.binary + ".reached"
	began := time.Now()
	out, ok, err := r.exec(ctx, s, selection{run: live, skip: r.skipped()}, 10*time.Minute, reachedVariable+"="+record)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("the tests of %s fail without a mutant:\n%s", folder, out)
	}
	s.took = time.Since(began)
	text, err := os.ReadFile(record)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			s.reached[n] = true
		}
	}
	return s, nil
}

// exhaustive matches the names of the tests that run last. They go through many combinations, or draw decisions until
// no work is left, which a mutant may prevent forever.
const exhaustive = "Combination|NoCluster|Random|NoVolumeIsGivenUp|Picture"

// selection chooses tests by patterns of their names, empty for all and for none.
type selection struct{ run, skip string }

// skipped returns the pattern of the tests that are not asked at all.
func (r *runner) skipped() string {
	if r.options.quick {
		return exhaustive
	}
	return ""
}

// exec runs some tests of a suite in an environment. ok is false if one failed.
func (r *runner) exec(
	ctx context.Context, s *suite, tests selection, atMost time.Duration, env ...string,
) (out string, ok bool, err error) {
	args := []string{"-test.short", "-test.failfast", "-test.timeout", atMost.String(), "-test.run", tests.run,
		"-test.skip", tests.skip}
	return r.command(ctx, s.folder, append(env, "TMPDIR="+r.scratch), s.binary, args...)
}

// command runs a program and returns its output. ok is false if its exit status is not 0.
func (r *runner) command(
	ctx context.Context, dir string, env []string, name string, args ...string,
) (out string, ok bool, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", false, ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(text), false, nil
	}
	return string(text), err == nil, err
}

// failed finds the test that failed first, and how many seconds it took.
var failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+) \(([0-9.]+)s\)`)

// kills returns the test that notices a mutant, or "".
func (s *suite) kills(ctx context.Context, r *runner, m *mutant) (by string, err error) {
	if !s.reached[m.number] {
		return "", nil
	}
	env := variable + "=" + strconv.Itoa(m.number)
	atMost := 3*s.took + 10*time.Second // a loop without end is noticed, too
	for _, tests := range s.order(r.options.quick) {
		out, ok, err := r.exec(ctx, s, tests, atMost, env)
		if err != nil {
			return "", err
		}
		if !ok {
			return s.killed(out), nil
		}
	}
	return "", nil
}

// order returns which tests are asked, one selection after another.
func (s *suite) order(quick bool) (all []selection) {
	if s.live != "" {
		return []selection{{run: s.live}}
	}
	if first := s.first(); first != "" {
		all = append(all, selection{run: first})
	}
	all = append(all, selection{skip: exhaustive})
	if !quick {
		all = append(all, selection{run: exhaustive})
	}
	return all
}

// first returns the pattern of the tests that are asked first.
func (s *suite) first() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	const some = 8
	if len(s.killers) == 0 {
		return ""
	}
	return "^(" + strings.Join(s.killers[:min(some, len(s.killers))], "|") + ")$"
}

// slow is how many seconds a test may take that is asked first.
const slow = 3

// killed notes which test noticed.
func (s *suite) killed(out string) string {
	by := "the end of the program"
	if m := failed.FindStringSubmatch(out); m != nil {
		by = m[1]
		if took, err := strconv.ParseFloat(m[2], 64); err != nil || took > slow {
			return by
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.killers = slices.DeleteFunc(s.killers, func(k string) bool { return k == by })
		s.killers = slices.Insert(s.killers, 0, by)
	}
	return by
}

// model is the model checker with all mutants compiled in.
type model struct {
	once   sync.Once
	binary string
	err    error
}

// build compiles the model checker, and checks that it has the worlds.
func (m *model) build(ctx context.Context, r *runner) error {
	m.binary = filepath.Join(r.scratch, "model")
	out, ok, err := r.command(ctx, r.build.root, nil, "go", "build", "-overlay", r.overlay, "-o", m.binary,
		"./test/model/cmd/model")
	if err == nil && !ok {
		err = fmt.Errorf("compile the model:\n%s", out)
	}
	if err != nil {
		return err
	}
	list, _, err := r.command(ctx, r.build.root, nil, m.binary, "--list")
	if err != nil {
		return err
	}
	for _, names := range worlds {
		for _, name := range names {
			if !strings.Contains("\n"+list, "\n"+name+": ") {
				return fmt.Errorf("the model has no world %q", name)
			}
		}
	}
	return nil
}

// askModel returns the first world of the model that shows a mutant, or "".
func (r *runner) askModel(ctx context.Context, m *mutant) (string, error) {
	all := worlds[m.pkg]
	if len(all) == 0 {
		return "", nil
	}
	r.model.once.Do(func() { r.model.err = r.model.build(ctx, r) })
	if r.model.err != nil {
		return "", r.model.err
	}
	for _, world := range all {
		env := []string{variable + "=" + strconv.Itoa(m.number)}
		out, ok, err := r.command(ctx, r.build.root, env, r.model.binary, "--world", world)
		if err != nil {
			return "", err
		}
		if !ok {
			return fmt.Sprintf("world %q: %s", world, promise(out)), nil
		}
	}
	return "", nil
}

// promise finds the first broken promise in the model's output.
func promise(out string) string {
	_, rest, found := strings.Cut(out, "\nworld ")
	if !found {
		return "the program ends"
	}
	line, _, _ := strings.Cut(rest, "\n")
	_, what, _ := strings.Cut(line, "\": ")
	return what
}
