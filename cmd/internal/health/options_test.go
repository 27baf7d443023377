package health

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/authorization"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/leader"
)

func TestProgramPath(t *testing.T) {
	o := &Options{endpoint: "127.0.0.1:0", metricsPath: "/metrics"}
	o.Handle("/own", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("mine")) }))
	handler := o.handler(nil, NewState(func() error { return nil }), prometheus.NewRegistry())
	for path, want := range map[string]string{"/own": "mine", "/healthz": "ok\n"} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if answer.Body.String() != want {
			t.Errorf("%s: %q", path, answer.Body)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	o.pprof = true
	for _, path := range []string{"/own", "/healthz", "/readyz", "/healthz/leader-election", "/debug/pprof/profile"} {
		o.metricsPath = path
		if err := o.Start(ctx, &running, nil, NewState(nil)); err == nil ||
			!strings.Contains(err.Error(), "--metrics-path="+path) {
			t.Errorf("two that are served under %s: %v", path, err)
		}
	}
}

// With --http-authorization, only the health paths are open.
func TestPathsWithAuthorization(t *testing.T) {
	filter, err := authorization.New(&rest.Config{Host: "http://127.0.0.1:1"}) // without a token no review is needed
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{false, true} {
		o := &Options{endpoint: "127.0.0.1:0", metricsPath: "/figures", pprof: true, authorize: on}
		o.Handle("/own", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("mine")) }))
		handler := o.handler(filter, NewState(func() error { return nil }), prometheus.NewRegistry())
		for path, open := range map[string]bool{"/healthz": true, "/readyz": true, leader.HealthPath: true,
			"/figures": false, "/own": false, "/debug/pprof/": false, "/debug/pprof/cmdline": false,
			"/debug/pprof/symbol": false, "/debug/pprof/heap": false} {
			want := http.StatusOK
			if on && !open {
				want = http.StatusUnauthorized
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			if answer.Code != want {
				t.Errorf("authorization %v: %s is answered with %d, want %d", on, path, answer.Code, want)
			}
		}
	}
}
