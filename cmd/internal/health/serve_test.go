package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data := must.Get(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(data)
}

func TestServer(t *testing.T) {
	fine := func() error { return nil }
	broken := func() error { return errors.New("the lease is old") }
	mux := http.NewServeMux()
	mux.Handle("/fine", Health(fine, fine))
	mux.Handle("/broken", Health(fine, broken))
	on := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, on, mux) }()

	address := on.Addr().String()
	if code, body := get(t, "http://"+address+"/fine"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("well: %d %q", code, body)
	}
	if code, body := get(t, "http://"+address+"/broken"); code != http.StatusInternalServerError ||
		!strings.Contains(body, "the lease is old") {
		t.Errorf("not well: %d %q", code, body)
	}
	if err := (&Options{endpoint: address, metricsPath: "/metrics"}).Start(ctx, nil, nil, NewState(nil)); err == nil ||
		!strings.Contains(err.Error(), address) {
		t.Errorf("a port that is taken: %v, want an error that names it", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("serve = %v", err)
	}
}

func TestState(t *testing.T) {
	waiting, old := errors.New("waiting for the first list"), errors.New("the lease is old")
	s := NewState(func() error { return waiting })
	if err := s.Alive(); err != nil {
		t.Errorf("waiting, Alive = %v: a restart does not help", err)
	}
	if err := s.Ready(); !errors.Is(err, waiting) {
		t.Errorf("waiting, Ready = %v", err)
	}
	wantMetric(t, s, "ready", 0)
	s.Begin(func() error { return nil })
	s.Lack("this", "that")
	if err := s.Ready(); err == nil || err.Error() != "this\nthat" {
		t.Errorf("Ready = %v, want what is lacking", err)
	}
	wantMetric(t, s, "ready", 0)
	s.Lack()
	wantMetric(t, s, "ready", 1)
	s.Watch(func() error { return old })
	wantMetric(t, s, "ready", 0)
	if err := s.Ready(); err != nil {
		t.Errorf("nothing is lacking any more, Ready = %v", err)
	}
	if err := s.Alive(); !errors.Is(err, old) {
		t.Errorf("Alive = %v, want %v", err, old)
	}
}

// A program can be ready without a permission.
func TestMissingPermissionsAreCounted(t *testing.T) {
	s := NewState(func() error { return nil })
	for _, missing := range []int{0, 2, 1, 0} {
		s.Miss(missing)
		wantMetric(t, s, "missing_permissions", missing)
		wantMetric(t, s, "ready", 1)
	}
}

// wantMetric expects this value of a metric of the state beside the metrics of the program.
func wantMetric(t *testing.T, s *State, name string, want int) {
	t.Helper()
	handler := (&Options{metricsPath: "/metrics"}).handler(nil, s, prometheus.NewRegistry())
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if line := fmt.Sprintf("\ncsi_reclaimer_%s %d\n", name, want); !strings.Contains(answer.Body.String(), line) {
		t.Errorf("want %q in %s", line, answer.Body)
	}
}
