//go:build unix

// Package daemon runs a program of this module that serves health and metrics as a process of its own:
// for tests, the demo and benchmarks.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/process"
)

// stopGrace is more than the programs leave their calls in hand (--shutdown-grace).
const stopGrace = 30 * time.Second

// Options say how to run the program.
type Options struct {
	// Name is the program's; ./cmd/NAME is its package. Required.
	Name string
	// Binary is the program. Default: built from this module, see Build.
	Binary string
	// Args are its flags, but for --http-endpoint and the log level.
	Args []string
	// Env are variables of its environment, as NAME=value.
	Env []string
	// Dir holds the log; it must exist. Default: a new one that Stop removes.
	Dir string
	// Progress is told what the go command says, where the binary is built. Default: nobody.
	Progress io.Writer
}

// Daemon is a program with its process, which it may outlive. All methods may be called from any
// goroutine.
type Daemon struct {
	options Options
	dir     string
	address string

	mu      sync.Mutex
	process *process.Process
}

// Build compiles a program of cmd/ and returns the path of the binary. goFlags are flags of go
// build, such as -race: the program then ends with an error when it has raced.
func Build(ctx context.Context, name string, progress io.Writer, goFlags ...string) (string, error) {
	return process.Build(ctx, "./cmd/"+name, progress, goFlags...)
}

// Start starts a program and returns at once; see WaitReady. It runs until Stop or Kill, or
// until the calling program ends.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	s := &Daemon{options: o, dir: o.Dir}
	if err := s.prepare(ctx); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	if err := s.Restart(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Daemon) prepare(ctx context.Context) (err error) {
	if s.options.Binary == "" {
		if s.options.Binary, err = Build(ctx, s.options.Name, s.options.Progress); err != nil {
			return err
		}
	}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", s.options.Name+"-"); err != nil {
			return err
		}
	}
	s.address, err = freeAddress()
	return err
}

// Restart starts the program again after Kill or Stop, with the same flags and more.
func (s *Daemon) Restart(more ...string) error {
	p, err := process.Start(process.Command{
		Name: s.options.Name, Path: s.options.Binary, Env: s.options.Env, LogFile: s.LogPath(),
		Args: slices.Concat([]string{"--http-endpoint=" + s.address, "-v=4"}, s.options.Args, more),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", s.options.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	return nil
}

// WaitReady returns once the program says that it is ready.
func (s *Daemon) WaitReady(ctx context.Context) error {
	for {
		_, err := s.Get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-s.Done():
			return fmt.Errorf("wait for %s: it ended: %s", s.options.Name, strings.TrimSpace(s.LogTail(5)))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", s.options.Name, ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Get returns what the HTTP port answers under a path; anything but 200 is an error with
// the answer in it.
func (s *Daemon) Get(ctx context.Context, path string) (string, error) {
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
func (s *Daemon) Kill() { s.current().Kill() }

// Pause and Resume freeze the process and let it go on.
func (s *Daemon) Pause() error { return s.current().Pause() }

// Resume undoes Pause.
func (s *Daemon) Resume() error { return s.current().Resume() }

// Terminate sends SIGTERM and waits for the end, which is an error if it is none in peace.
func (s *Daemon) Terminate() error { return s.current().Stop(stopGrace) }

// Stop ends the process with SIGTERM and removes what the program left on disk.
func (s *Daemon) Stop() error {
	err := s.Terminate()
	if s.options.Dir == "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// Done is closed when the process has ended; Err is then its error.
func (s *Daemon) Done() <-chan struct{} { return s.current().Done() }

// Err returns how the process ended, nil for exit status 0 or while it runs.
func (s *Daemon) Err() error { return s.current().Err() }

// PID returns the process id.
func (s *Daemon) PID() int { return s.current().PID() }

// LogPath returns the file that holds the log of all runs.
func (s *Daemon) LogPath() string { return filepath.Join(s.dir, s.options.Name+".log") }

// LogTail returns the last n lines of the log.
func (s *Daemon) LogTail(n int) string { return s.current().LogTail(n) }

// WaitLog returns once the present run has logged the text.
func (s *Daemon) WaitLog(ctx context.Context, text string) error {
	return s.current().WaitLog(ctx, text)
}

func (s *Daemon) current() *process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// freeAddress returns a loopback address with a port that nobody has. Another program may
// take it before the daemon does; the daemon then ends and says so.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
