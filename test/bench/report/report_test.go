//go:build unix

package report

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMedianAndPercentile(t *testing.T) {
	cases := map[string]struct {
		values           []float64
		median, p50, p99 float64
	}{
		"one":              {[]float64{4}, 4, 4, 4},
		"an odd number":    {[]float64{9, 1, 5}, 5, 5, 9},
		"an even number":   {[]float64{4, 1, 3, 2}, 2.5, 2, 4},
		"the worst of two": {[]float64{7, 3}, 5, 3, 7},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := append([]float64(nil), c.values...)
			got := []float64{Median(c.values), Percentile(c.values, 50), Percentile(c.values, 99)}
			if want := []float64{c.median, c.p50, c.p99}; !cmp.Equal(got, want) {
				t.Errorf("median, p50, p99 of %v = %v, want %v", c.values, got, want)
			}
			if !cmp.Equal(before, c.values) {
				t.Errorf("the values were changed to %v", c.values)
			}
		})
	}
	if m, p := Median(nil), Percentile(nil, 50); !math.IsNaN(m) || !math.IsNaN(p) {
		t.Errorf("of nothing: %v and %v, want NaN", m, p)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	if got := Percentile(hundred, 99); got != 99 {
		t.Errorf("p99 of 1 to 100 = %v, want 99", got)
	}
}

func TestGoals(t *testing.T) {
	cases := map[string]struct {
		goal    Goal
		medians map[string]float64
		reached bool
		verdict string
	}{
		"a count that is exact":            {Exactly(1), map[string]float64{Ours: 1}, true, "reached"},
		"a count that is not":              {Exactly(1), map[string]float64{Ours: 1.01}, false, "missed by 1 %"},
		"a count that is too small":        {Exactly(1), map[string]float64{Ours: 0.99}, false, "missed by 1 %"},
		"something where nothing is to be": {Exactly(0), map[string]float64{Ours: 0.5}, false, "missed by 0.50"},
		"below a bound":                    {AtMost(25), map[string]float64{Ours: 24}, true, "reached"},
		"at the bound":                     {AtMost(25), map[string]float64{Ours: 25}, true, "reached"},
		"above it":                         {AtMost(25), map[string]float64{Ours: 50}, false, "missed by 100 %"},
		"faster than the reference": {AtLeastOf(1.1, Unthrottled), map[string]float64{Ours: 120, Unthrottled: 100},
			true, "reached (1.20 ×)"},
		"faster, but not as much as wanted": {AtLeastOf(1.1, Unthrottled), map[string]float64{Ours: 105, Unthrottled: 100},
			false, "missed by 5 % (1.05 ×)"},
		"as fast as the reference": {AtLeastOf(1, Unthrottled), map[string]float64{Ours: 100, Unthrottled: 100},
			true, "reached (1.00 ×)"},
		"not fast enough": {AtLeastOf(1.1, Unthrottled), map[string]float64{Ours: 55, Unthrottled: 100},
			false, "missed by 50 % (0.55 ×)"},
		"cheaper than the reference": {AtMostOf(1, Unthrottled), map[string]float64{Ours: 6, Unthrottled: 8},
			true, "reached (0.75 ×)"},
		"as dear as the reference": {AtMostOf(1, Unthrottled), map[string]float64{Ours: 8, Unthrottled: 8},
			true, "reached (1.00 ×)"},
		"dearer than the reference": {AtMostOf(1, Unthrottled), map[string]float64{Ours: 12, Unthrottled: 8},
			false, "missed by 50 % (1.50 ×)"},
		"dearer than one reference, not than the other": {AtMostOf(1, Unthrottled),
			map[string]float64{Ours: 12, Unthrottled: 8, Reference: 20}, false, "missed by 50 % (1.50 ×)"},
		"nothing to compare with": {AtLeastOf(100, Reference), map[string]float64{Ours: 55}, false, "not measured"},
		"no run of ours":          {AtMost(1), map[string]float64{Reference: 5}, false, "not measured"},
		"not a number":            {AtMost(1), map[string]float64{Ours: math.NaN()}, false, "not measured"},
		"a relation that does not exist": {Goal{Relation: "<", Value: 9}, map[string]float64{Ours: 1},
			false, "missed by 89 %"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			reached, verdict := c.goal.Judge(c.medians)
			if reached != c.reached || verdict != c.verdict {
				t.Errorf("%v of %v: %v %q, want %v %q", c.goal, c.medians, reached, verdict, c.reached, c.verdict)
			}
		})
	}
}

func TestCheckFindsMissingMeasurements(t *testing.T) {
	runs := func(column string, values ...float64) map[string][]float64 {
		return map[string][]float64{column: values}
	}
	for name, c := range map[string]struct {
		runs map[string][]float64
		ok   bool
	}{
		"runs of ours":                   {runs(Ours, 1, 0), true},
		"no runs":                        {nil, false},
		"runs of ours, none in them":     {runs(Ours), false},
		"runs of the reference alone":    {runs(Unthrottled, 1), false},
		"no time passed":                 {runs(Ours, math.Inf(1)), false},
		"nothing in no time":             {runs(Ours, math.NaN()), false},
		"the end is before the start":    {runs(Ours, 3, -1), false},
		"the reference measured nothing": {map[string][]float64{Ours: {1}, Unthrottled: {math.NaN()}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			good := &Figure{Name: "good", Runs: runs(Ours, 1)}
			if err := Check([]*Figure{good, {Name: "other", Runs: c.runs}}); (err == nil) != c.ok {
				t.Errorf("Check: %v, want ok %v", err, c.ok)
			}
		})
	}
}

func TestReportRoundTrips(t *testing.T) {
	names := []string{"first", "second"}
	figure := &Figure{
		Name: "first", Unit: "calls", Load: "Few.", Goals: []Goal{Exactly(1), AtMostOf(0.5, Unthrottled)},
		Runs: map[string][]float64{Ours: {1, 1, 1}, Unthrottled: {1.5, 1.25, 1.75}},
		Measurement: Measurement{Date: time.Unix(1e9, 0).UTC(), Seed: 7, Machine: Machine{CPU: "abacus", Cores: 2},
			Versions: Versions{Kubernetes: "v1.36.3", Ours: "v0.1", Reference: "v10.0.1", Go: "go1"}},
	}
	dir := t.TempDir()
	report, err := Read(dir, names)
	must(t, err)
	report.Add(&Figure{Name: "second"}, &Figure{Name: "first"})
	report.Add(figure)
	again := rewritten(t, report, dir)
	if diff := cmp.Diff(report, again, cmp.AllowUnexported(Report{})); diff != "" {
		t.Error(diff)
	}
	if again.Figures[0].Name != "first" {
		t.Errorf("the first figure is %s", again.Figures[0].Name)
	}
	want := "bench first ours=1.00 reference=- reference_unthrottled=1.50 reference_v13=- " +
		"reference_v13_unthrottled=- limit=-"
	if got := figure.Line(); got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	expectLines(t, again,
		"| figure | unit | ours | reference_unthrottled | runs | measurement |",
		"| `first` | calls | 1.00 | 1.50 (1.25–1.75) | 3 | [1](#measurement-1) |",
		"1 of 2 goals are reached.",
		"| `first` | = 1.00 | 1.00 | reached |",
		"| `first` | ≤ 0.50 × reference_unthrottled | 1.00 | missed by 33 % (0.67 ×) |",
		"Measured 2001-09-09 01:46 on abacus, 2 cores, 0 MiB of memory,  , with csi-reclaimer v0.1, go1, Kubernetes "+
			"v1.36.3 and v10.0.1; seed 7, processors 0 % busy before:",
		"- `first`: Few.")
	again.Judge(map[string][]Goal{"first": {Exactly(2)}})
	expectLines(t, again, "0 of 1 goals are reached.", "| `first` | = 2.00 | 1.00 | missed by 50 % |")
	if fewer, err := Read(dir, names[:1]); err != nil || len(fewer.Figures) != 1 {
		t.Errorf("of one figure that is still known there are %d, error %v", len(fewer.Figures), err)
	}
}

// A run of one family keeps the figures of the others, each with the machine and the versions of its own measurement.
func TestFamiliesKeepTheirMeasurements(t *testing.T) {
	names := []string{"one", "another", "other"}
	on := func(name string, value float64, at int64, cpu, kubernetes, ours string) *Figure {
		return &Figure{Name: name, Unit: "calls", Load: "Few.", Runs: map[string][]float64{Ours: {value}},
			Measurement: Measurement{Date: time.Unix(at, 0).UTC(), Machine: Machine{CPU: cpu},
				Versions: Versions{Kubernetes: kubernetes, Ours: ours, ReferenceV13: "v13.1.0"}}}
	}
	dir := t.TempDir()
	first := &Report{names: names}
	first.Add(on("one", 1, 1e9, "abacus", "v1.36.3", "v0.1"), on("another", 2, 1e9, "abacus", "v1.36.3", "v0.1"),
		on("other", 3, 1e9, "abacus", "v1.36.3", "v0.1"))
	later := rewritten(t, first, dir)
	later.Add(on("other", 4, 2e9, "slide rule", "v1.37.0", "v0.2"))
	again := rewritten(t, later, dir)
	if len(again.Figures) != 3 {
		t.Fatalf("%d figures, want 3", len(again.Figures))
	}
	expectLines(t, again,
		"| `one` | calls | 1.00 | 1 | [1](#measurement-1) |",
		"| `another` | calls | 2.00 | 1 | [1](#measurement-1) |",
		"| `other` | calls | 4.00 | 1 | [2](#measurement-2) |",
		"### Measurement 1\n\nMeasured 2001-09-09 01:46 on abacus, 0 cores, 0 MiB of memory,  , with csi-reclaimer v0.1, "+
			", Kubernetes v1.36.3 and  and v13.1.0; seed 0, processors 0 % busy before:\n\n- `one`: Few.\n- `another`: Few.",
		"### Measurement 2\n\nMeasured 2033-05-18 03:33 on slide rule, 0 cores, 0 MiB of memory,  , with csi-reclaimer "+
			"v0.2, , Kubernetes v1.37.0 and  and v13.1.0; seed 0, processors 0 % busy before:\n\n- `other`: Few.")
}

// rewritten writes a report and reads it again.
func rewritten(t *testing.T, r *Report, dir string) *Report {
	t.Helper()
	must(t, r.Write(dir))
	again, err := Read(dir, r.names)
	must(t, err)
	return again
}

// expectLines checks that the page of a report has these lines.
func expectLines(t *testing.T, r *Report, lines ...string) {
	t.Helper()
	var page bytes.Buffer
	must(t, r.Markdown(&page))
	for _, line := range lines {
		if !strings.Contains(page.String(), line+"\n") {
			t.Errorf("no line %q in\n%s", line, page.String())
		}
	}
}
