//go:build unix

// Package sidecar runs csi-reclaimer as a process of its own, as it runs beside a driver:
// for tests, the demo and benchmarks. What it does to PVs is left to the program.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/process"
)

// stopGrace is more than the sidecar leaves its calls in hand (--shutdown-grace).
const stopGrace = 30 * time.Second

// Options say how to run the sidecar.
type Options struct {
	// Address is the CSI driver's socket (--csi-address). Required.
	Address string
	// Kubeconfig is the path of a kubeconfig file. Required.
	Kubeconfig string
	// Args are further flags.
	Args []string
	// Env are variables of its environment, as NAME=value.
	Env []string
	// Binary is the program. Default: built from this module, see Build.
	Binary string
	// Dir holds the log; it must exist. Default: a new one that Stop removes.
	Dir string
	// Progress is told what the go command says, where the binary is built. Default: nobody.
	Progress io.Writer
}

// Sidecar is a csi-reclaimer with its process, which it may outlive. All methods may be
// called from any goroutine.
type Sidecar struct {
	options Options
	dir     string
	address string

	mu      sync.Mutex
	process *process.Process
}

// Build compiles csi-reclaimer and returns the path of the binary. goFlags are flags of go
// build, such as -race: the program then ends with an error when it has raced.
func Build(ctx context.Context, progress io.Writer, goFlags ...string) (string, error) {
	return process.Build(ctx, "./cmd/csi-reclaimer", progress, goFlags...)
}

// Start starts a sidecar and returns at once; see WaitReady. It runs until Stop or Kill, or
// until the calling program ends.
func Start(ctx context.Context, o Options) (*Sidecar, error) {
	s := &Sidecar{options: o, dir: o.Dir}
	if err := s.prepare(ctx); err != nil {
		return nil, fmt.Errorf("start csi-reclaimer: %w", err)
	}
	if err := s.Restart(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Sidecar) prepare(ctx context.Context) (err error) {
	if s.options.Binary == "" {
		if s.options.Binary, err = Build(ctx, s.options.Progress); err != nil {
			return err
		}
	}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "csi-reclaimer-"); err != nil {
			return err
		}
	}
	s.address, err = freeAddress()
	return err
}

// Restart starts the program again after Kill or Stop, with the same flags and more.
func (s *Sidecar) Restart(more ...string) error {
	args := append([]string{
		"--csi-address=" + s.options.Address, "--kubeconfig=" + s.options.Kubeconfig,
		"--http-endpoint=" + s.address, "-v=4",
	}, s.options.Args...)
	p, err := process.Start(process.Command{
		Name: "csi-reclaimer", Path: s.options.Binary, Args: append(args, more...), Env: s.options.Env, LogFile: s.LogPath(),
	})
	if err != nil {
		return fmt.Errorf("start csi-reclaimer: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	return nil
}

// WaitReady returns once the sidecar reached its driver and filled its caches.
func (s *Sidecar) WaitReady(ctx context.Context) error {
	for {
		_, err := s.Get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-s.Done():
			return fmt.Errorf("wait for csi-reclaimer: it ended: %s", strings.TrimSpace(s.LogTail(5)))
		case <-ctx.Done():
			return fmt.Errorf("wait for csi-reclaimer: %w: %w", ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Get returns what the HTTP port answers under a path; anything but 200 is an error with
// the answer in it.
func (s *Sidecar) Get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %s", path, response.Status, strings.TrimSpace(string(body)))
	}
	return string(body), nil
}

// Kill ends the process as kill -9 does.
func (s *Sidecar) Kill() { s.current().Kill() }

// Pause and Resume freeze the process and let it go on.
func (s *Sidecar) Pause() error { return s.current().Pause() }

// Resume undoes Pause.
func (s *Sidecar) Resume() error { return s.current().Resume() }

// Terminate sends SIGTERM and waits for the end, which is an error if it is none in peace.
func (s *Sidecar) Terminate() error { return s.current().Stop(stopGrace) }

// Stop ends the process with SIGTERM and removes what the sidecar left on disk.
func (s *Sidecar) Stop() error {
	err := s.Terminate()
	if s.options.Dir == "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// Done is closed when the process has ended; Err is then its error.
func (s *Sidecar) Done() <-chan struct{} { return s.current().Done() }

// Err returns how the process ended, nil for exit status 0 or while it runs.
func (s *Sidecar) Err() error { return s.current().Err() }

// PID returns the process id.
func (s *Sidecar) PID() int { return s.current().PID() }

// LogPath returns the file that holds the log of all runs.
func (s *Sidecar) LogPath() string { return filepath.Join(s.dir, "csi-reclaimer.log") }

// LogTail returns the last n lines of the log.
func (s *Sidecar) LogTail(n int) string { return s.current().LogTail(n) }

// WaitLog returns once the present run has logged the text.
func (s *Sidecar) WaitLog(ctx context.Context, text string) error {
	return s.current().WaitLog(ctx, text)
}

func (s *Sidecar) current() *process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// freeAddress returns a loopback address with a port that nobody has. Another program may
// take it before the sidecar does; the sidecar then ends and says so.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
