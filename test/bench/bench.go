//go:build unix

package bench

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

// family is a number of figures that are measured together.
type family struct {
	name  string
	plane kind
	// long is left out of a quick measurement, unless it is asked for by name.
	long bool
	// byHand is left out, unless it is asked for by name.
	byHand bool
	// uncosted has no figures of processor time: it counts, with an audit log, or its load is no volumes.
	uncosted bool
	figures  []report.Figure
	run      func(context.Context, *session) error
}

// families returns all families, in the order of the report.
func families() []family {
	return slices.Concat(countFamilies(), releasedFamilies(), liveFamilies(), backfillFamilies(), latencyFamilies(),
		scaleFamilies(), podFamilies(), singleNodeFamilies(), idleFamilies(), inFlightFamilies(), growthFamilies(),
		outageFamilies())
}

// Names returns the names of all figures in the order of the report.
func Names() (names []string) {
	for _, f := range families() {
		for _, figure := range f.figures {
			names = append(names, figure.Name)
		}
	}
	return names
}

// List writes all families with their figures.
func List(w io.Writer) {
	for _, f := range families() {
		fmt.Fprintln(w, f.name)
		for _, figure := range f.figures {
			fmt.Fprintln(w, "  "+figure.Name)
		}
	}
}

// session is one call of Run.
type session struct {
	Options
	programs programs
	machine  report.Machine
	versions report.Versions
	random   *rand.Rand
	env      *environment
	family   string
	figures  map[string]*report.Figure
}

// Run measures and returns the figures. With an error it returns the figures measured before.
func Run(ctx context.Context, o Options, v report.Versions) (figures []*report.Figure, err error) {
	s := &session{Options: o, machine: report.ThisMachine(), versions: v}
	if s.Progress == nil {
		s.Progress = io.Discard
	}
	if s.Runs == 0 {
		s.Runs = s.size(3, 1)
	}
	if s.Seed == 0 {
		s.Seed = uint64(rand.Uint32())
	}
	s.random = rand.New(rand.NewPCG(s.Seed, s.Seed))
	chosen, err := choose(o.Only)
	if err != nil {
		return nil, err
	}
	if s.programs, err = buildPrograms(ctx, s.Progress); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.closeEnvironment()) }()
	for _, f := range chosen {
		if len(o.Only) == 0 && (f.byHand || f.long && s.Quick) {
			continue
		}
		measured, err := s.measure(ctx, f)
		if err != nil {
			return figures, fmt.Errorf("measure %s: %w", f.name, err)
		}
		figures = append(figures, measured...)
	}
	return figures, nil
}

// choose returns the families that the names pick, in the order in which they are measured: by environment.
func choose(only []string) (chosen []family, err error) {
	for _, name := range only {
		if !slices.ContainsFunc(families(), func(f family) bool { return f.is(name) }) {
			return nil, fmt.Errorf("choose figures: %q is neither a family nor a figure", name)
		}
	}
	for _, f := range families() {
		if len(only) == 0 || slices.ContainsFunc(only, f.is) {
			chosen = append(chosen, f)
		}
	}
	slices.SortStableFunc(chosen, func(a, b family) int { return int(a.plane) - int(b.plane) })
	return chosen, nil
}

func (f family) is(name string) bool {
	return f.name == name || slices.ContainsFunc(f.figures,
		func(figure report.Figure) bool { return strings.HasPrefix(figure.Name, name) })
}

// measure runs a family in its environment, on processors that are quiet if possible.
func (s *session) measure(ctx context.Context, f family) ([]*report.Figure, error) {
	began := time.Now()
	s.say("%s", f.name)
	if err := s.openEnvironment(ctx, f.plane); err != nil {
		return nil, err
	}
	busy, err := subject.BusyPercent(ctx)
	if err != nil {
		return nil, err
	}
	if busy > quiet {
		s.say("the processors are %.0f %% busy with other things: rates and times will say little", busy)
	}
	figures, err := s.figuresOf(ctx, f, began, busy)
	if err != nil {
		return nil, err
	}
	for _, figure := range figures {
		if s.Measured != nil {
			s.Measured(figure)
		}
	}
	s.say("%s took %v", f.name, time.Since(began).Round(time.Second))
	return figures, nil
}

// figuresOf runs a family and returns its figures. It is an error if one of them has no value of ours.
func (s *session) figuresOf(ctx context.Context, f family, began time.Time, busy float64) (all []*report.Figure,
	err error) {
	s.family, s.figures = f.name, map[string]*report.Figure{}
	measurement := report.Measurement{Date: began.UTC().Truncate(time.Second), Machine: s.machine, Versions: s.versions,
		Seed: s.Seed, Quick: s.Quick, BusyBefore: math.Round(busy)}
	for _, figure := range f.figures {
		figure.Runs, figure.Measurement = map[string][]float64{}, measurement
		s.figures[figure.Name] = &figure
		all = append(all, &figure)
	}
	if err := f.run(ctx, s); err != nil {
		return nil, err
	}
	return all, report.Check(all)
}

// quiet is how busy, in percent, an idle control plane keeps two processors, and some room.
const quiet = 20

// openEnvironment makes the environment of this kind the present one.
func (s *session) openEnvironment(ctx context.Context, k kind) (err error) {
	if s.env != nil && s.env.kind == k {
		return nil
	}
	if err := s.closeEnvironment(); err != nil {
		return err
	}
	s.env, err = newEnvironment(ctx, k, s.programs, s.Progress)
	return err
}

func (s *session) closeEnvironment() error {
	if s.env == nil {
		return nil
	}
	err := s.env.close()
	s.env = nil
	return err
}

// record notes a value of a run.
func (s *session) record(figure, column string, value float64) {
	f, known := s.figures[figure]
	if !known {
		panic("bench: no figure " + figure + " in this family") // a mistake in the tables
	}
	f.Runs[column] = append(f.Runs[column], value)
	s.say("  %s %s %.2f %s", figure, column, value, f.Unit)
}

func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.Progress, "bench: "+format+"\n", args...)
}

// size returns the size of a load.
func (s *session) size(full, quick int) int {
	if s.Quick {
		return quick
	}
	return full
}

// alternate calls do for each run, and calls the returned functions in turn. Each run begins with another function, so
// that a slow minute of the machine hits all of them, and none is always the first.
func (s *session) alternate(do func(run int) []func() error) error {
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

// each returns the functions for alternate: one for each subject, with a load of n.
func each(subjects []subject.Subject, n int, one func(subject.Subject, int) func() error) (all []func() error) {
	for _, sub := range subjects {
		all = append(all, one(sub, n))
	}
	return all
}

// once is each of the slow subjects in the first run, unless few volumes are taken: a second run would take long.
func (s *session) once(run, n int, one func(subject.Subject, int) func() error) []func() error {
	if s.Quick || run > 0 {
		return nil
	}
	return each(subject.Slow(), n, one)
}

// shuffled returns the names in another order.
func (s *session) shuffled(names []string) []string {
	names = slices.Clone(names)
	s.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}
