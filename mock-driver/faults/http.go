package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
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
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
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

// Client sets and reads the fault plan of a running driver over HTTP.
type Client struct {
	// Address is the host:port of the driver's fault address.
	Address string
}

// Set validates the plan and replaces the driver's plan with it.
func (c Client) Set(ctx context.Context, p Plan) error {
	if err := p.Validate(); err != nil {
		return err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode fault plan: %w", err)
	}
	_, err = c.do(ctx, http.MethodPut, body)
	return err
}

// Clear replaces the driver's plan with an empty one.
func (c Client) Clear(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodDelete, nil)
	return err
}

// Status returns the plan with its counters.
func (c Client) Status(ctx context.Context) (Status, error) {
	return c.do(ctx, http.MethodGet, nil)
}

func (c Client) do(ctx context.Context, method string, body []byte) (s Status, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s fault plan: %w", method, err)
		}
	}()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.Address+Path, bytes.NewReader(body))
	if err != nil {
		return Status{}, err
	}
	r.Close = true // A kept connection would outlive a driver that a test restarts.
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return Status{}, err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(data)))
	}
	if err != nil {
		return Status{}, err
	}
	err = json.Unmarshal(data, &s)
	return s, err
}
