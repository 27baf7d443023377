//go:build unix

package growth

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestSlopeIsCostOfThousandObjectsMoreWhereMostAre(t *testing.T) {
	t.Parallel()
	sizes := []int{100, 1_000, 10_000}
	for name, c := range map[string]struct {
		costs []float64
		want  float64
	}{
		"constant":    {[]float64{5, 5, 5}, 0},
		"linear":      {[]float64{1, 10, 100}, 10},
		"square":      {[]float64{0.01, 1, 100}, 11},
		"flat, later": {[]float64{0, 9, 9}, 0},
		"less":        {[]float64{9, 9, 0}, 0},
	} {
		var costs [][]float64
		for _, cost := range c.costs {
			costs = append(costs, []float64{-1, cost})
		}
		if got := slope(sizes, costs, 1); got != c.want {
			t.Errorf("%s: slope %v, want %v", name, got, c.want)
		}
	}
}

func TestGrowthRecordsEachSizeAndSlope(t *testing.T) {
	t.Parallel()
	g := growth{name: "n", load: "%d objects.", sizes: []int{10, 20}, costs: []cost{{"twice", "x", "Twice.", 2000}}}
	g.run = func(_ context.Context, _ *session.Session, at measures) error {
		return at(func(n int) ([]float64, error) { return []float64{2 * float64(n)}, nil })
	}
	s := &session.Session{Options: session.Options{Runs: 1, Progress: io.Discard},
		Env: &session.Environment{Kind: g.plane()}}
	all := must.Get(s.FiguresOf(t.Context(), session.Family{Figures: g.figures(), Run: g.measure}, time.Time{}, 0))(t)
	got := map[string]float64{}
	for _, figure := range all {
		got[figure.Name] = figure.Runs[report.Ours][0]
	}
	if len(got) != 3 || got["growth_n_twice_10"] != 20 || got["growth_n_twice_20"] != 40 ||
		got["growth_n_twice_slope"] != 2000 {
		t.Errorf("recorded %v", got)
	}
}
