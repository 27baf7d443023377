// Package health serves health checks and metrics on the HTTP port of a program.
package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

// Check returns an error if a part of the program is unhealthy.
type Check func() error

// Health returns a handler that answers 200 "ok", or 500 with the first error of the checks.
func Health(checks ...Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, check := range checks {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		_, _ = w.Write([]byte("ok\n"))
	})
}

// serve answers requests on a listener until ctx ends.
func serve(ctx context.Context, on net.Listener, handler http.Handler) error {
	klog.FromContext(ctx).Info("Serving health and metrics", "address", on.Addr().String())
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    1 << 17, // the longest token, and other headers of a browser
	}
	stopped := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(on)
	if !unhook() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve health and metrics: %w", err)
}

// State is the state behind the health endpoints from the moment the port is open, and is safe for concurrent use.
type State struct {
	mu           sync.Mutex
	lease, begun Check
	// lacks explains why the program cannot work, and is empty otherwise.
	lacks []string
	// missing is the number of permissions that the program lacks, whether it can work or not.
	missing int
}

// NewState returns the state of a program, where begun returns an error until the program has started.
func NewState(begun Check) *State { return &State{begun: begun} }

// Begin replaces the check for the start of the program.
func (s *State) Begin(begun Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = begun
}

// Watch sets the check for the renewal of the Lease.
func (s *State) Watch(lease Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
}

// Lack replaces the reasons why the program cannot work; without arguments it can work.
func (s *State) Lack(what ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacks = what
}

// Miss sets the number of permissions that the program lacks.
func (s *State) Miss(permissions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = permissions
}

func (s *State) missed() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.missing)
}

// Alive returns an error if only a restart can help.
func (s *State) Alive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil
	}
	return s.lease()
}

// Ready returns an error until the program has started, and while a reason of Lack remains.
func (s *State) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lacks) > 0 {
		return errors.New(strings.Join(s.lacks, "\n"))
	}
	return s.begun()
}

// metrics returns the metrics of the state, which are served from the moment the port is open. A program that waits for
// its driver or for a permission differs from a program at rest by no other metric.
func (s *State) metrics() prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	ready := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "csi_reclaimer_ready",
		Help: "1 while /readyz succeeds, else 0.",
	}, func() float64 { return events.Bool(s.Alive() == nil && s.Ready() == nil) })
	missing := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "csi_reclaimer_missing_permissions",
		Help: "Permissions that the program lacked at its last check. It repeats the check until it lacks none.",
	}, s.missed)
	registry.MustRegister(ready, missing)
	return registry
}
