package health

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestAPathOfTheProgramsOwn(t *testing.T) {
	o := &Options{endpoint: "127.0.0.1:0", metricsPath: "/metrics"}
	o.Handle("/own", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("mine")) }))
	handler := o.handler(NewState(func() error { return nil }), prometheus.NewRegistry())
	for path, want := range map[string]string{"/own": "mine", "/healthz": "ok\n"} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if answer.Body.String() != want {
			t.Errorf("%s: %q", path, answer.Body)
		}
	}
	o.metricsPath = "/own"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	if err := o.Start(ctx, &running, NewState(nil)); err == nil || !strings.Contains(err.Error(), "--metrics-path=/own") {
		t.Errorf("two that are served under one path: %v", err)
	}
}
