package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

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

func (c Client) do(ctx context.Context, method string, body []byte) (Status, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.Address+Path, bytes.NewReader(body))
	if err != nil {
		return Status{}, fmt.Errorf("%s fault plan: %w", method, err)
	}
	r.Close = true // A kept connection would outlive a driver that a test restarts.
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return Status{}, fmt.Errorf("%s fault plan: %w", method, err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return Status{}, fmt.Errorf("%s fault plan: %w", method, err)
	}
	if response.StatusCode != http.StatusOK {
		return Status{}, fmt.Errorf("%s fault plan: %s: %s", method, response.Status, strings.TrimSpace(string(data)))
	}
	var s Status
	if err := json.Unmarshal(data, &s); err != nil {
		return Status{}, fmt.Errorf("%s fault plan: %w", method, err)
	}
	return s, nil
}
