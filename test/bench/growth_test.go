//go:build unix

package bench

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
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

// A simulation and families by hand are measured only by name, and each slope has a goal.
func TestGrowthFamilies(t *testing.T) {
	t.Parallel()
	for _, f := range families() {
		if f.byHand != (f.name == "outage") {
			t.Errorf("family %s: by hand %v", f.name, f.byHand)
		}
		for _, figure := range f.figures {
			if strings.HasSuffix(figure.Name, slopeSuffix) != (len(figure.Goals) > 0) &&
				strings.HasPrefix(figure.Name, growthPrefix) {
				t.Errorf("figure %s: goals %v", figure.Name, figure.Goals)
			}
		}
	}
	chosen, err := choose([]string{"growth"})
	if err != nil || len(chosen) != len(growthFamilies()) {
		t.Errorf("%d families, want %d: %v", len(chosen), len(growthFamilies()), err)
	}
}

func TestGrowthRecordsEachSizeAndSlope(t *testing.T) {
	t.Parallel()
	g := growth{name: "n", load: "%d objects.", sizes: []int{10, 20}, costs: []cost{{"twice", "x", "Twice.", 2000}}}
	g.run = func(_ context.Context, _ *session, at measures) error {
		return at(func(n int) ([]float64, error) { return []float64{2 * float64(n)}, nil })
	}
	s := &session{Options: Options{Runs: 1, Progress: io.Discard}, env: &environment{kind: g.plane()}}
	all, err := s.figuresOf(t.Context(), family{figures: g.figures(), run: g.measure}, time.Time{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, figure := range all {
		got[figure.Name] = figure.Runs[report.Ours][0]
	}
	if len(got) != 3 || got["growth_n_twice_10"] != 20 || got["growth_n_twice_20"] != 40 ||
		got["growth_n_twice_slope"] != 2000 {
		t.Errorf("recorded %v", got)
	}
}

func TestKindsOfRequests(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]string{
		"GET /api/v1/pods":                                                 "list pods",
		"GET /api/v1/pods?watch=true":                                      "watch pods",
		"GET /api/v1/namespaces/a/pods?limit=500":                          "list pods",
		"GET /api/v1/namespaces/a/pods/b":                                  "get pods",
		"PATCH /api/v1/namespaces/a/pods/b/status":                         "patch pods/status",
		"GET /api/v1/namespaces/a":                                         "get namespaces",
		"GET /api/v1/namespaces":                                           "list namespaces",
		"POST /apis/events.k8s.io/v1/namespaces/default/events":            "post events",
		"PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/b":           "put leases",
		"DELETE /apis/csi-reclaimer.io/v1alpha1/volumelocks/node":          "delete volumelocks",
		"GET /apis/storage.k8s.io/v1/storageclasses?watch=1&timeout=5m30s": "watch storageclasses",
		"GET /readyz": "get /readyz",
	} {
		method, target, _ := strings.Cut(request, " ")
		if got := kindOf(httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody)); got != want {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
	}
}

func TestProxyCountsRequestsAndAnswers(t *testing.T) {
	t.Parallel()
	p := &proxy{keep: toLog, traffic: newTraffic()}
	for _, c := range []struct {
		method, path, body, answer string
		code                       int
	}{
		{http.MethodGet, "/api/v1/pods", "", "many", http.StatusOK},
		{http.MethodGet, "/api/v1/pods?watch=true", "", "more", http.StatusOK},
		{http.MethodPatch, "/api/v1/namespaces/a/persistentvolumeclaims/b", "lock", "no", http.StatusConflict},
		{http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/a/leases/d-in-flight-0", "entry", "ok", http.StatusOK},
		{http.MethodPost, "/apis/events.k8s.io/v1/namespaces/a/events", "event", "ok", http.StatusCreated},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
		if err := p.asked(r); err != nil {
			t.Fatal(err)
		}
		if passed, err := io.ReadAll(r.Body); string(passed) != c.body || err != nil {
			t.Errorf("%s: passed on %q, %v", c.path, passed, err)
		}
		response := &http.Response{StatusCode: c.code, Request: r, Body: io.NopCloser(strings.NewReader(c.answer))}
		if err := p.answered(response); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(response.Body); string(answer) != c.answer || err != nil {
			t.Errorf("%s: answered %q, %v", c.path, answer, err)
		}
	}
	got, bodies := p.take()
	if got.count() != 2 || got.conflicts != 1 || got.bytes() != 14 || got.received["list pods"] != 4 || got.sent != 14 {
		t.Errorf("counted %+v", got)
	}
	if len(bodies) != 1 || string(bodies[0]) != "entry" {
		t.Errorf("kept %q", bodies)
	}
	if again, _ := p.take(); again.bytes() > 0 || again.count() > 0 {
		t.Errorf("counted twice: %+v", again)
	}
}
