//go:build unix

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

const (
	// readyPollInterval is how often a starting component is asked whether it is ready.
	readyPollInterval = 50 * time.Millisecond
	// probeTimeout bounds one such question.
	probeTimeout = 2 * time.Second
	// startTimeout bounds the start of a component if the caller's context has no deadline. An API server takes 2 seconds
	// on an idle processor, and minutes on one shared by dozens of compilers.
	startTimeout = 8 * time.Minute
	// logLines is how much of a component's log an error quotes.
	logLines = 15
)

// errPortTaken says that a component found its port in use.
var errPortTaken = errors.New("port taken by another program")

// Component is one process of a control plane. Its methods may be called from any goroutine.
type Component struct {
	command process.Command
	health  string // the URL that answers 200 when the component is ready
	roots   *x509.CertPool

	mu      sync.Mutex
	current *process.Process // nil before the first start
}

// Name is the component's own, for example "kube-apiserver".
func (c *Component) Name() string { return c.command.Name }

// LogFile is the path of the log, which all runs of the component append to.
func (c *Component) LogFile() string { return c.command.LogFile }

// LogTail returns the last n lines that the present run has logged.
func (c *Component) LogTail(n int) string { return c.process().LogTail(n) }

// PID is the number of the present or last process.
func (c *Component) PID() int { return c.process().PID() }

// Running says whether the process has not ended. A paused one is running.
func (c *Component) Running() bool { return c.process().Running() }

// Kill ends the component with SIGKILL, as a machine that loses power does.
func (c *Component) Kill() { c.process().Kill() }

// Stop ends the component with SIGTERM and kills it after grace. An API server may
// take a while: it waits for requests in flight.
func (c *Component) Stop(grace time.Duration) error { return c.process().Stop(grace) }

// Pause freezes the component: its port accepts connections and nothing answers.
func (c *Component) Pause() error { return c.process().Pause() }

// Resume ends a Pause.
func (c *Component) Resume() error { return c.process().Resume() }

// Restart kills the component, if it still runs, starts it again on the same port and data, with the same flags and,
// for this run, more, and waits until it is ready.
func (c *Component) Restart(ctx context.Context, more ...string) error {
	c.Kill()
	return c.start(ctx, more...)
}

func (c *Component) process() *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// start starts the process and waits until it is ready.
func (c *Component) start(ctx context.Context, more ...string) error {
	command := c.command
	command.Args = slices.Concat(command.Args, more)
	p, err := process.Start(command)
	if err != nil {
		return err
	}
	c.mu.Lock()
	previous := c.current
	c.current = p
	c.mu.Unlock()
	if previous != nil {
		previous.Close()
	}
	if err := c.waitReady(ctx, p); err != nil {
		return fmt.Errorf("start %s: %w\n%s", c.Name(), err, p.LogTail(logLines))
	}
	return nil
}

// end kills the process and closes its log.
func (c *Component) end() {
	if c == nil {
		return
	}
	if p := c.process(); p != nil {
		p.Close()
	}
}

func (c *Component) waitReady(ctx context.Context, p *process.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ticker := time.NewTicker(readyPollInterval)
	defer ticker.Stop()
	var last error // from before ctx ended: later errors say only that
	for {
		err := c.probe(ctx)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-p.Done(): // asked before err: another program may answer on our port
			return c.whyEnded(p)
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return c.whyEnded(p)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w (%w)", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

// whyEnded names the one reason that is worth another try.
func (c *Component) whyEnded(p *process.Process) error {
	if strings.Contains(p.LogTail(1000), "address already in use") {
		return errPortTaken
	}
	if err := p.Err(); err != nil {
		return err
	}
	return errors.New("ended with exit status 0")
}

// probe asks once whether the component is ready. It keeps no connection: a restarted component has other ones.
func (c *Component) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.health, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: c.roots}}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", c.health, response.Status, body)
	}
	return nil
}
