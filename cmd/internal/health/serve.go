// Package health serves health checks and metrics on the HTTP port of a program.
package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"
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

// Server is an HTTP server that is already listening.
type Server struct {
	listener net.Listener
	server   *http.Server
}

// Listen listens on a TCP address ("host:port", ":port", port 0 for a free one), so that an address in use causes an
// error before anything else starts.
func Listen(address string, handler http.Handler) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %q for health and metrics: %w", address, err)
	}
	return &Server{listener: listener, server: &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    1 << 17, // the longest token, and other headers of a browser
	}}, nil
}

// Address returns the address of the listener.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	klog.FromContext(ctx).Info("Serving health and metrics", "address", s.Address())
	stopped := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.server.Shutdown(grace) != nil {
			_ = s.server.Close()
		}
	})
	err := s.server.Serve(s.listener)
	if !unhook() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve health and metrics: %w", err)
}
