//go:build unix

package bench

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
		met     bool
		verdict string
	}{
		"a count that is exact":            {exactly(1), map[string]float64{Ours: 1}, true, "met"},
		"a count that is not":              {exactly(1), map[string]float64{Ours: 1.01}, false, "missed by 1 %"},
		"something where nothing is to be": {exactly(0), map[string]float64{Ours: 0.5}, false, "missed by 0.50"},
		"below a bound":                    {atMost(25), map[string]float64{Ours: 24}, true, "met"},
		"above it":                         {atMost(25), map[string]float64{Ours: 50}, false, "missed by 100 %"},
		"fast enough":                      {atLeast(10), map[string]float64{Ours: 10}, true, "met"},
		"faster than the reference": {atLeastOf(1.1, Unthrottled), map[string]float64{Ours: 120, Unthrottled: 100},
			true, "met (1.20 ×)"},
		"not fast enough": {atLeastOf(1.1, Unthrottled), map[string]float64{Ours: 55, Unthrottled: 100},
			false, "missed by 50 % (0.55 ×)"},
		"nothing to compare with": {atLeastOf(100, Reference), map[string]float64{Ours: 55}, false, "not measured"},
		"no run of ours":          {atMost(1), map[string]float64{Reference: 5}, false, "not measured"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			met, verdict := c.goal.Judge(c.medians)
			if met != c.met || verdict != c.verdict {
				t.Errorf("%v of %v: %v %q, want %v %q", c.goal, c.medians, met, verdict, c.met, c.verdict)
			}
		})
	}
}

func TestReportRoundTrips(t *testing.T) {
	machine, versions := Machine{CPU: "abacus", Cores: 2}, Versions{Kubernetes: "v1.36.3", Ours: "v0.1"}
	name := families()[0].figures[0].Name
	figure := &Figure{
		Name: name, Unit: "calls", Load: "Few.", Goals: []Goal{exactly(1)}, Seed: 7,
		Runs: map[string][]float64{Ours: {1, 1, 1}, Unthrottled: {1.5, 1.25, 1.75}}, Date: time.Unix(1e9, 0).UTC(),
		Version: "v0.1",
	}
	dir := t.TempDir()
	report, err := Read(dir, machine, versions)
	if err != nil {
		t.Fatal(err)
	}
	report.Add(&Figure{Name: families()[0].figures[1].Name}, &Figure{Name: name})
	report.Add(figure)
	if err := report.Write(dir); err != nil {
		t.Fatal(err)
	}
	again, err := Read(dir, machine, versions)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report, again); diff != "" {
		t.Error(diff)
	}
	if again.Figures[0].Name != name {
		t.Errorf("the first figure is %s", again.Figures[0].Name)
	}
	want := "bench " + name + " ours=1.00 reference=- reference_unthrottled=1.50 limit=-"
	if got := figure.Line(); got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	var table bytes.Buffer
	if err := again.Markdown(&table); err != nil {
		t.Fatal(err)
	}
	row := "| `" + name + "` | calls | 1.00 | - | 1.50 | - | = 1.00 | met | 3 |\n"
	if !strings.Contains(table.String(), row) {
		t.Errorf("no line %q in\n%s", row, table.String())
	}
	machine.Cores = 64
	if other, err := Read(dir, machine, versions); err != nil || len(other.Figures) > 0 {
		t.Errorf("on another machine there are %d figures, error %v", len(other.Figures), err)
	}
}

func TestUsageOfAProcess(t *testing.T) {
	status := "Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t  20480 kB\nVmRSS:\t  10240 kB\n"
	stat := "42 (a ) name) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20"
	got, err := parseUsage(status, stat)
	if want := (usage{peakMiB: 20, residentMiB: 10, cpu: 2}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range [][2]string{{"", stat}, {status, ""}, {status, "42 (x) S 1"}} {
		if _, err := parseUsage(bad[0], bad[1]); err == nil {
			t.Errorf("%q gives no error", bad)
		}
	}
}

func TestBusyProcessors(t *testing.T) {
	before := "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 1 1 1\n"
	after := "cpu  130 0 120 730 120 0 0 0 90 0\ncpu0 9 9 9 9\n"
	if got := busyBetween(before, after); got != 50 {
		t.Errorf("busy %v %%, want 50", got)
	}
	if got := busyBetween("", ""); got != 0 {
		t.Errorf("of nothing: %v %%, want 0", got)
	}
}

func TestFamiliesAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range families() {
		for _, figure := range f.figures {
			if seen[figure.Name] || figure.Unit == "" || figure.Load == "" {
				t.Errorf("figure %q of %s: named twice %v, unit %q, load %q", figure.Name, f.name, seen[figure.Name], figure.Unit,
					figure.Load)
			}
			seen[figure.Name] = true
		}
	}
	if _, err := choose([]string{"no such figure"}); err == nil {
		t.Error("a figure that does not exist was found")
	}
	if chosen, err := choose([]string{"gone_per_second_pv"}); err != nil || len(chosen) != 1 || chosen[0].name != "gone" {
		t.Errorf("gone_per_second_pv: %v, %v", chosen, err)
	}
}
