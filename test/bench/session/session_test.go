//go:build unix

package session

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestFamilyWithMissingFiguresFails(t *testing.T) {
	figures := []report.Figure{{Name: "one"}, {Name: "other"}}
	for name, c := range map[string]struct {
		values map[string]float64
		ok     bool
	}{
		"every figure has a value": {map[string]float64{"one": 1, "other": 2}, true},
		"nothing has":              {nil, false},
		"one has none":             {map[string]float64{"one": 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Session{Options: Options{Progress: io.Discard}}
			_, err := s.FiguresOf(t.Context(), Family{Figures: figures, Run: func(context.Context, *Session) error {
				for figure, value := range c.values {
					s.Record(figure, report.Ours, value)
				}
				return nil
			}}, time.Time{}, 0)
			if (err == nil) != c.ok {
				t.Errorf("figuresOf: %v, want ok %v", err, c.ok)
			}
		})
	}
}

func TestAlternateRotates(t *testing.T) {
	s, order := &Session{Options: Options{Runs: 3}}, ""
	add := func(letter string) func() error { return func() error { order += letter; return nil } }
	if err := s.Alternate(func(int) []func() error {
		return []func() error{add("a"), add("b"), add("c")}
	}); err != nil || order != "abcbcacab" {
		t.Errorf("order %q, error %v", order, err)
	}
}

func TestRunWithLostVolumesFails(t *testing.T) {
	call := func(volume, code string) ledger.Call { return ledger.Call{Volume: volume, Code: code} }
	for name, c := range map[string]struct {
		calls []ledger.Call
		ok    bool
	}{
		"each volume once":         {[]ledger.Call{call("a", "OK"), call("b", "OK")}, true},
		"one of them twice":        {[]ledger.Call{call("a", "OK"), call("a", "OK"), call("b", "OK")}, true},
		"one after a failure":      {[]ledger.Call{call("a", "OK"), call("b", "Internal"), call("b", "OK")}, true},
		"one not at all":           {[]ledger.Call{call("a", "OK")}, false},
		"one twice, the other not": {[]ledger.Call{call("a", "OK"), call("a", "OK")}, false},
		"one in vain":              {[]ledger.Call{call("a", "OK"), call("b", "Internal")}, false},
	} {
		if err := EveryVolume(c.calls, 2); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok %v", name, err, c.ok)
		}
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
	p := &Proxy{keep: ToLog, traffic: newTraffic()}
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
		must.OK(t, p.asked(r))
		if passed, err := io.ReadAll(r.Body); string(passed) != c.body || err != nil {
			t.Errorf("%s: passed on %q, %v", c.path, passed, err)
		}
		response := &http.Response{StatusCode: c.code, Request: r, Body: io.NopCloser(strings.NewReader(c.answer))}
		must.OK(t, p.answered(response))
		if answer, err := io.ReadAll(response.Body); string(answer) != c.answer || err != nil {
			t.Errorf("%s: answered %q, %v", c.path, answer, err)
		}
	}
	got, bodies := p.Take()
	if got.Count() != 2 || got.Conflicts != 1 || got.Bytes() != 14 || got.Received["list pods"] != 4 || got.sent != 14 {
		t.Errorf("counted %+v", got)
	}
	if len(bodies) != 1 || string(bodies[0]) != "entry" {
		t.Errorf("kept %q", bodies)
	}
	if again, _ := p.Take(); again.Bytes() > 0 || again.Count() > 0 {
		t.Errorf("counted twice: %+v", again)
	}
}
