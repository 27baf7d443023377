//go:build unix

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
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

// Ports are taken from below the range from which the kernel gives clients theirs (Linux 32768, BSD and macOS 49152):
// a client of another program must not sit on the port of an API server that is being restarted.
const (
	lowestPort  = 20000
	highestPort = 32767
	portTries   = 1000
)

// given are the ports that this process has chosen. It chooses none twice, since a chosen port may not be in use yet,
// or its component may be restarting.
var given = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// FreePorts returns n unused loopback ports, different ones at each call. Another program may take a port before it is
// used. The caller then retries with others.
func FreePorts(n int) (ports []int, err error) {
	given.Lock()
	defer given.Unlock()
	var held []net.Listener // until all are found, so that none is found twice
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	for range portTries {
		if len(ports) == n {
			return ports, nil
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if given.ports[port] {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		held = append(held, listener)
		given.ports[port] = true
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find %d free ports: none in %d tries", n, portTries)
}

// FreeAddress returns a loopback address with an unused port.
func FreeAddress() (string, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])), nil
}

// folderPattern begins the names of control planes' folders in the system's temporary folder.
const folderPattern = "csi-reclaimer-controlplane-"

// folder is where one control plane has its data, keys and logs.
type folder struct {
	path string
	keep bool
	dir  *rundir.Dir // nil for a folder that is to be kept or was named by the caller
}

func (f folder) file(name string) string { return filepath.Join(f.path, name) }

func (f folder) write(name string, content []byte) (string, error) {
	path := f.file(name)
	return path, os.WriteFile(path, content, 0o600)
}

// openFolder makes the folder of a control plane. Folders that killed programs have left are removed first.
func openFolder(dir string, keep bool) (folder, error) {
	if dir != "" {
		return openNamedFolder(dir, keep)
	}
	removeOrphans(os.TempDir())
	if keep {
		path, err := os.MkdirTemp("", folderPattern)
		if err != nil {
			return folder{}, fmt.Errorf("make folder: %w", err)
		}
		return folder{path: path, keep: true}, nil
	}
	made, err := rundir.Make(folderPattern)
	if err != nil {
		return folder{}, err
	}
	return folder{path: made.Path(), dir: made}, nil
}

func openNamedFolder(dir string, keep bool) (folder, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return folder{}, fmt.Errorf("make folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return folder{}, fmt.Errorf("make folder: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return folder{}, fmt.Errorf("make folder: %w", err)
	}
	if len(entries) > 0 {
		return folder{}, fmt.Errorf("make folder: %q is not empty", path)
	}
	return folder{path: path, keep: keep}, nil
}

// removeOrphans removes the folders under base that belong to no living program. Its processes ended with it.
func removeOrphans(base string) { rundir.RemoveOrphans(base, folderPattern, nil) }

// close removes the folder, unless it is to be kept.
func (f folder) close() error {
	switch {
	case f.keep:
		return nil
	case f.dir != nil:
		return f.dir.Remove()
	}
	return os.RemoveAll(f.path)
}
