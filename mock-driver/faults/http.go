package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Path is the URL path under which a Handler serves the plan.
const Path = "/faults"

// maxPlan is the maximum size of a plan over HTTP, in bytes.
const maxPlan = 4 << 20

// Handler serves the plan: GET returns it with its counters, PUT replaces it, DELETE clears it. It rejects requests
// for a non-loopback host, so that no web page can reach it through a host name of its own.
func (e *Engine) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) { e.writeStatus(w) })
	mux.HandleFunc("DELETE "+Path, func(w http.ResponseWriter, _ *http.Request) { e.replace(w, Plan{}) })
	mux.HandleFunc("PUT "+Path, func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPlan))
		if err != nil {
			refuse(w, err)
			return
		}
		plan, err := ParsePlan(data)
		if err != nil {
			refuse(w, err)
			return
		}
		e.replace(w, plan)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, _, err := net.SplitHostPort(r.Host); err != nil || !loopback(host) {
			http.Error(w, "only for loopback hosts", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (e *Engine) replace(w http.ResponseWriter, p Plan) {
	if err := e.Set(p); err != nil {
		refuse(w, err)
		return
	}
	e.writeStatus(w)
}

func (e *Engine) writeStatus(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(e.Status()) // A write error means that the client is gone.
}

func refuse(w http.ResponseWriter, err error) {
	code := http.StatusBadRequest
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		code = http.StatusRequestEntityTooLarge
	}
	http.Error(w, err.Error(), code)
}

// Listen listens on a loopback address, such as 127.0.0.1:0, and refuses any other.
func Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("fault address %q: want host:port, such as 127.0.0.1:0", address)
	}
	if !loopback(host) {
		return nil, fmt.Errorf("fault address %q: must be a loopback address, such as 127.0.0.1:0", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("fault address: %w", err)
	}
	return l, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
