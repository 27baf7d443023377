//go:build unix

// Package session runs families of figures: the environment of a family, its subjects, its users, and the record of its
// values.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

// Options select the measurements.
type Options struct {
	// Quick takes fewer volumes and one run each: to see that it works, and the counts.
	Quick bool
	// Only are names of families or beginnings of names of figures. Default: all.
	Only []string
	// Runs of each subject. Default: 3, Quick 1.
	Runs int
	// Seed determines arbitrary orders. Default: a random one.
	Seed uint64
	// Profiles is a folder for profiles of csi-reclaimer's memory, one for each size and run. Default: none are taken.
	Profiles string
	// Progress receives a line for each long step. Default: none.
	Progress io.Writer
	// Measured is called for each figure as soon as it is measured. Optional.
	Measured func(*report.Figure)
}

// Family is a number of figures that are measured together.
type Family struct {
	Name  string
	Plane Plane
	// Long is left out of a quick measurement, unless it is asked for by name.
	Long bool
	// ByHand is left out, unless it is asked for by name.
	ByHand bool
	// Uncosted has no figures of processor time: it counts, with an audit log, or its load is no volumes.
	Uncosted bool
	Figures  []report.Figure
	Run      func(context.Context, *Session) error
}

// Session is one call of Run.
type Session struct {
	Options
	programs programs
	machine  report.Machine
	versions report.Versions
	random   *rand.Rand
	Env      *Environment
	family   string
	figures  map[string]*report.Figure
}

// Run measures families and returns the figures. With an error it returns the figures measured before.
func Run(ctx context.Context, families []Family, o Options, v report.Versions) (figures []*report.Figure, err error) {
	s := &Session{Options: o, machine: report.ThisMachine(), versions: v}
	if s.Progress == nil {
		s.Progress = io.Discard
	}
	if s.Runs == 0 {
		s.Runs = s.Size(3, 1)
	}
	if s.Seed == 0 {
		s.Seed = uint64(rand.Uint32())
	}
	s.random = rand.New(rand.NewPCG(s.Seed, s.Seed))
	chosen, err := Choose(families, o.Only)
	if err != nil {
		return nil, err
	}
	if s.programs, err = buildPrograms(ctx, s.Progress); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.CloseEnvironment()) }()
	for _, f := range chosen {
		if len(o.Only) == 0 && (f.ByHand || f.Long && s.Quick) {
			continue
		}
		measured, err := s.measure(ctx, f)
		if err != nil {
			return figures, fmt.Errorf("measure %s: %w", f.Name, err)
		}
		figures = append(figures, measured...)
	}
	return figures, nil
}

// Choose returns the families that the names pick, in the order in which they are measured: by environment.
func Choose(families []Family, only []string) (chosen []Family, err error) {
	for _, name := range only {
		if !slices.ContainsFunc(families, func(f Family) bool { return f.is(name) }) {
			return nil, fmt.Errorf("choose figures: %q is neither a family nor a figure", name)
		}
	}
	for _, f := range families {
		if len(only) == 0 || slices.ContainsFunc(only, f.is) {
			chosen = append(chosen, f)
		}
	}
	slices.SortStableFunc(chosen, func(a, b Family) int { return int(a.Plane) - int(b.Plane) })
	return chosen, nil
}

func (f Family) is(name string) bool {
	return f.Name == name || slices.ContainsFunc(f.Figures,
		func(figure report.Figure) bool { return strings.HasPrefix(figure.Name, name) })
}

// measure runs a family in its environment, on processors that are quiet if possible.
func (s *Session) measure(ctx context.Context, f Family) ([]*report.Figure, error) {
	began := time.Now()
	s.Say("%s", f.Name)
	if err := s.OpenEnvironment(ctx, f.Plane); err != nil {
		return nil, err
	}
	busy, err := subject.BusyPercent(ctx)
	if err != nil {
		return nil, err
	}
	if busy > quiet {
		s.Say("the processors are %.0f %% busy with other things: rates and times will say little", busy)
	}
	figures, err := s.FiguresOf(ctx, f, began, busy)
	if err != nil {
		return nil, err
	}
	for _, figure := range figures {
		if s.Measured != nil {
			s.Measured(figure)
		}
	}
	s.Say("%s took %v", f.Name, time.Since(began).Round(time.Second))
	return figures, nil
}

// FiguresOf runs a family and returns its figures. It is an error if one of them has no value of ours.
func (s *Session) FiguresOf(ctx context.Context, f Family, began time.Time, busy float64) (all []*report.Figure,
	err error) {
	s.family, s.figures = f.Name, map[string]*report.Figure{}
	measurement := report.Measurement{Date: began.UTC().Truncate(time.Second), Machine: s.machine, Versions: s.versions,
		Seed: s.Seed, Quick: s.Quick, BusyBefore: math.Round(busy)}
	for _, figure := range f.Figures {
		figure.Runs, figure.Measurement = map[string][]float64{}, measurement
		s.figures[figure.Name] = &figure
		all = append(all, &figure)
	}
	if err := f.Run(ctx, s); err != nil {
		return nil, err
	}
	return all, report.Check(all)
}

// quiet is how busy, in percent, an idle control plane keeps two processors, and some room.
const quiet = 20

// OpenEnvironment makes the environment of this kind the present one.
func (s *Session) OpenEnvironment(ctx context.Context, k Plane) (err error) {
	if s.Env != nil && s.Env.Kind == k {
		return nil
	}
	if err := s.CloseEnvironment(); err != nil {
		return err
	}
	s.Env, err = newEnvironment(ctx, k, s.programs, s.Progress)
	return err
}

func (s *Session) CloseEnvironment() error {
	if s.Env == nil {
		return nil
	}
	err := s.Env.close()
	s.Env = nil
	return err
}

// Record notes a value of a run.
func (s *Session) Record(figure, column string, value float64) {
	f, known := s.figures[figure]
	if !known {
		panic("bench: no figure " + figure + " in this family") // a mistake in the tables
	}
	f.Runs[column] = append(f.Runs[column], value)
	s.Say("  %s %s %.2f %s", figure, column, value, f.Unit)
}

func (s *Session) Say(format string, args ...any) {
	fmt.Fprintf(s.Progress, "bench: "+format+"\n", args...)
}

// Size returns the size of a load.
func (s *Session) Size(full, quick int) int {
	if s.Quick {
		return quick
	}
	return full
}

// Alternate calls do for each run, and calls the returned functions in turn. Each run begins with another function, so
// that a slow minute of the machine hits all of them, and none is always the first.
func (s *Session) Alternate(do func(run int) []func() error) error {
	for run := range s.Runs {
		all := do(run)
		for i := range all {
			if err := all[(run+i)%len(all)](); err != nil {
				return err
			}
		}
	}
	return nil
}

// Each returns the functions for Alternate: one for each subject, with a load of n.
func Each(subjects []subject.Subject, n int, one func(subject.Subject, int) error) (all []func() error) {
	for _, sub := range subjects {
		all = append(all, func() error { return one(sub, n) })
	}
	return all
}

// Once is each of the slow subjects in the first run, unless few volumes are taken: a second run would take long.
func (s *Session) Once(run, n int, one func(subject.Subject, int) error) []func() error {
	if s.Quick || run > 0 {
		return nil
	}
	return Each(subject.Slow(), n, one)
}

// Shuffled returns the names in another order.
func (s *Session) Shuffled(names []string) []string {
	names = slices.Clone(names)
	s.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}
