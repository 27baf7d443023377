//go:build unix

// Package program runs a program of this module that serves health and metrics as a process of its own:
// for tests, the demo and benchmarks.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
)

// stopGrace is more than the programs leave their calls under way (--shutdown-grace), also on a machine that keeps them
// waiting.
const stopGrace = time.Minute

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
	// Dir holds the log; it must exist. Default: a new folder that Stop removes.
	Dir string
	// Progress receives the output of the go command. Default: none.
	Progress io.Writer
}

// Program is a program with its process, which it may outlive. All methods may be called from any
// goroutine.
type Program struct {
	options Options
	dir     string
	address string

	mu      sync.Mutex
	process *process.Process
	// owned is the folder to remove.
	owned *rundir.Dir
}

// Build compiles a program of cmd/ and returns the path of the binary. goFlags are flags of go
// build, such as -race: the program then ends with an error when it has raced.
func Build(ctx context.Context, name string, progress io.Writer, goFlags ...string) (string, error) {
	return process.Build(ctx, "./cmd/"+name, progress, goFlags...)
}

// Start starts a program and returns at once; see WaitReady. It runs until Stop or Kill, or
// until the calling program ends.
func Start(ctx context.Context, o Options) (*Program, error) {
	p := &Program{options: o, dir: o.Dir}
	if err := p.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", o.Name, err), p.remove())
	}
	if err := p.Restart(); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	return p, nil
}

func (p *Program) prepare(ctx context.Context) (err error) {
	if p.options.Binary == "" {
		if p.options.Binary, err = Build(ctx, p.options.Name, p.options.Progress); err != nil {
			return err
		}
	}
	if p.dir == "" {
		if p.owned, err = rundir.New(p.options.Name + "-"); err != nil {
			return err
		}
		p.dir = p.owned.Path()
	}
	p.address, err = controlplane.FreeAddress() // no other process gets it between two runs
	return err
}

// Restart starts the program again after Kill or Stop, with the same flags and more.
func (p *Program) Restart(more ...string) error {
	started, err := process.Start(process.Command{
		Name: p.options.Name, Path: p.options.Binary, Env: p.options.Env, LogFile: p.LogPath(),
		Args: slices.Concat([]string{"--http-endpoint=" + p.address, "-v=4"}, p.options.Args, more),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", p.options.Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process = started
	return nil
}

// WaitReady returns once the program says that it is ready.
func (p *Program) WaitReady(ctx context.Context) error {
	for {
		_, err := p.Get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("wait for %s: it ended: %s", p.options.Name, strings.TrimSpace(p.LogTail(5)))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", p.options.Name, ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Address is the address of the HTTP port.
func (p *Program) Address() string { return p.address }

// Get returns the HTTP port's answer under a path. A status other than 200 is an error that contains the answer.
func (p *Program) Get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, http.NoBody)
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
func (p *Program) Kill() { p.current().Kill() }

// Pause and Resume stop the process and continue it.
func (p *Program) Pause() error { return p.current().Pause() }

// Resume undoes Pause.
func (p *Program) Resume() error { return p.current().Resume() }

// Terminate sends SIGTERM and waits for the end, which is an error if it is none in peace.
func (p *Program) Terminate() error { return p.current().Stop(stopGrace) }

// Stop ends the process with SIGTERM and removes the program's files.
func (p *Program) Stop() error { return errors.Join(p.Terminate(), p.remove()) }

func (p *Program) remove() error {
	p.mu.Lock()
	owned := p.owned
	p.owned = nil
	p.mu.Unlock()
	if owned == nil {
		return nil
	}
	return owned.Remove()
}

// Done is closed when the process has ended; Err is then its error.
func (p *Program) Done() <-chan struct{} { return p.current().Done() }

// Err returns how the process ended, nil for exit status 0 or while it runs.
func (p *Program) Err() error { return p.current().Err() }

// PID returns the process id.
func (p *Program) PID() int { return p.current().PID() }

// LogPath returns the file that holds the log of all runs.
func (p *Program) LogPath() string { return filepath.Join(p.dir, p.options.Name+".log") }

// Log returns the log of all runs.
func (p *Program) Log() (string, error) {
	text, err := os.ReadFile(p.LogPath())
	return string(text), err
}

// LogTail returns the last n lines of the log, for use in messages: it leaves out all but the end of a long log.
func (p *Program) LogTail(n int) string { return p.current().LogTail(n) }

// WaitLog returns once the present run has logged the text.
func (p *Program) WaitLog(ctx context.Context, text string) error {
	return p.current().WaitLog(ctx, text)
}

func (p *Program) current() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// ProvisionerVersion is the version of the stock external-provisioner in
// test/framework/nodes/tools/external-provisioner.
const ProvisionerVersion = "v6.4.0"

// BuildProvisioner compiles the stock external-provisioner, without the C library, and returns the path of the binary.
// Its module is of its own: it needs other versions of Kubernetes' libraries.
func BuildProvisioner(ctx context.Context, progress io.Writer) (string, error) {
	return process.Build(ctx, "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", progress,
		"-modfile=test/framework/nodes/tools/external-provisioner/go.mod", "-tags=netgo,osusergo")
}

// BuildStock compiles a stock program beside a provisioner: csi-attacher, csi-resizer, csi-snapshotter, or
// snapshot-controller, of the versions in test/framework/nodes/tools. It returns the path of the binary, which is
// static.
func BuildStock(ctx context.Context, name string, progress io.Writer) (string, error) {
	module, known := map[string]string{
		"csi-attacher":        "external-attacher/v4",
		"csi-resizer":         "external-resizer/v2",
		"csi-snapshotter":     "external-snapshotter/v8",
		"snapshot-controller": "external-snapshotter/v8",
	}[name]
	if !known {
		return "", fmt.Errorf("build %s: no such sidecar", name)
	}
	versions := "sidecars/go.mod"
	if name == "csi-attacher" {
		versions = "go.mod"
	}
	return process.Build(ctx, "github.com/kubernetes-csi/"+module+"/cmd/"+name, progress,
		"-modfile=test/framework/nodes/tools/"+versions, "-tags=netgo,osusergo")
}

const sidecarName = "csi-reclaimer"

// SidecarOptions say how to run the sidecar.
type SidecarOptions struct {
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
	// Dir holds the log; it must exist. Default: a new folder that Stop removes.
	Dir string
	// Progress receives the output of the go command. Default: none.
	Progress io.Writer
}

// BuildSidecar compiles csi-reclaimer and returns the path of the binary. See [Build].
func BuildSidecar(ctx context.Context, progress io.Writer, goFlags ...string) (string, error) {
	return Build(ctx, sidecarName, progress, goFlags...)
}

// StartSidecar starts csi-reclaimer beside a driver and returns at once. See [Start].
func StartSidecar(ctx context.Context, o SidecarOptions) (*Program, error) {
	args := []string{"--csi-address=" + o.Address, "--kubeconfig=" + o.Kubeconfig}
	return Start(ctx, Options{
		Name: sidecarName, Binary: o.Binary, Args: append(args, o.Args...), Env: o.Env, Dir: o.Dir, Progress: o.Progress,
	})
}
