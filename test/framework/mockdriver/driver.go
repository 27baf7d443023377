//go:build unix

// Package mockdriver runs the mock CSI driver as a separate process, for tests, the demo and benchmarks. It starts the
// driver, kills and restarts it on the same state, sets its faults, and reads its ledger and its volumes on disk. The
// driver itself is in mock-driver.
package mockdriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/disk"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
)

// Options say which driver to run. The zero value is the driver mock.csi-reclaimer.io with profile full and its state
// in a new directory.
type Options struct {
	// Binary is the driver's binary. Default: built from this module, see [Build].
	Binary string
	// Launcher is a program with its arguments that becomes the driver's process. The driver's path and flags follow the
	// arguments. Default: the driver runs without a launcher.
	Launcher []string
	// Dir holds state, ledger and log, and is kept. Default: a new directory that Stop removes.
	Dir string
	// Name is the driver's name. Default mock.csi-reclaimer.io.
	Name string
	// Profile is the kind of driver. Default full. See mock-driver --help.
	Profile string
	// Args are further flags.
	Args []string
	// Faults is the plan that the driver starts with. A restarted driver has none.
	Faults faults.Plan
	// Progress receives the output of the go command. Default: none.
	Progress io.Writer
}

// stopGrace is more than the driver itself leaves its calls (mock-driver --grace), also on a machine that keeps it
// waiting.
const stopGrace = time.Minute

// Driver is a mock driver with its process, which it may outlive. All methods may be called from any goroutine.
type Driver struct {
	options   Options
	dir       string
	owned     *rundir.Dir
	socketDir string
	conn      *grpc.ClientConn

	mu      sync.Mutex
	process *process.Process
}

// Build compiles the driver and returns the path of the binary. It does nothing if that is up to date.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	return process.Build(ctx, "./mock-driver", progress)
}

// Start starts a driver and returns when it answers Probe. It runs until Stop or Kill, or until the calling program
// ends; the end of the context does not end it. A driver started with --ready-after is up, but says that it is not
// ready.
func Start(ctx context.Context, o Options) (*Driver, error) {
	d := &Driver{options: o, dir: o.Dir}
	if err := d.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start mock driver: %w", err), d.remove())
	}
	args, err := d.faultArgs(o.Faults)
	if err == nil {
		err = d.run(ctx, args)
	}
	if err != nil {
		if p := d.current(); p != nil {
			p.Close()
		}
		return nil, errors.Join(fmt.Errorf("start mock driver: %w", err), d.remove())
	}
	return d, nil
}

func (d *Driver) prepare(ctx context.Context) (err error) {
	if d.options.Binary == "" {
		if d.options.Binary, err = Build(ctx, d.options.Progress); err != nil {
			return err
		}
	}
	// A socket's path must be short, and the directory that a test framework hands out is not.
	if d.owned, err = rundir.New("csi-mock-"); err != nil {
		return err
	}
	d.socketDir = d.owned.Path()
	if d.dir == "" {
		d.dir = d.socketDir
	}
	if err := os.MkdirAll(d.stateDir(), 0o755); err != nil {
		return err
	}
	d.conn, err = grpc.NewClient(d.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5,
			MaxDelay: 100 * time.Millisecond}}))
	return err
}

func (d *Driver) faultArgs(p faults.Plan) ([]string, error) {
	if len(p.Rules) == 0 {
		return nil, nil
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(d.dir, "faults.json")
	return []string{"--fault-plan=" + file}, os.WriteFile(file, data, 0o644)
}

// run starts a process on the driver's state and waits until it answers.
func (d *Driver) run(ctx context.Context, more []string) error {
	if err := os.Remove(d.addressFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	args := []string{
		"--endpoint=" + d.Endpoint(), "--state-dir=" + d.stateDir(), "--ledger=" + d.LedgerPath(),
		"--fault-address=127.0.0.1:0", "--fault-address-file=" + d.addressFile(),
	}
	if d.options.Name != "" {
		args = append(args, "--name="+d.options.Name)
	}
	if d.options.Profile != "" {
		args = append(args, "--profile="+d.options.Profile)
	}
	args = append(append(args, d.options.Args...), more...)
	command := append(slices.Clone(d.options.Launcher), d.options.Binary)
	p, err := process.Start(process.Command{Name: "mock-driver", Path: command[0],
		Args: append(command[1:], args...), LogFile: d.LogPath()})
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.process = p
	d.mu.Unlock()
	return d.waitServing(ctx, p)
}

// waitServing returns when the process answers Probe, or has ended.
func (d *Driver) waitServing(ctx context.Context, p *process.Process) error {
	probing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.Done():
			cancel(fmt.Errorf("%w: %s", orExited(p.Err()), strings.TrimSpace(p.LogTail(5))))
		case <-probing.Done():
		}
	}()
	for {
		_, err := csi.NewIdentityClient(d.conn).Probe(probing, &csi.ProbeRequest{})
		switch {
		case err == nil:
			return nil
		case probing.Err() != nil:
			return fmt.Errorf("wait for the driver to serve: %w", context.Cause(probing))
		case status.Code(err) != codes.Unavailable:
			return fmt.Errorf("wait for the driver to serve: %w", err)
		}
		// The call went out on the connection to the former process, whose end was not noticed yet. The next call waits for a
		// new connection.
	}
}

func orExited(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// Kill ends the process as kill -9 does. State and ledger stay.
func (d *Driver) Kill() { d.current().Kill() }

// Pause freezes the process: the socket stays, nothing answers. Resume ends that.
func (d *Driver) Pause() error { return d.current().Pause() }

// Resume ends a Pause.
func (d *Driver) Resume() error { return d.current().Resume() }

// Done is closed when the process has ended, by itself or otherwise. After a restart, ask anew.
func (d *Driver) Done() <-chan struct{} { return d.current().Done() }

// Restart kills the process if it runs, and starts another on the same state, socket and ledger, without faults.
// Further flags may be given.
func (d *Driver) Restart(ctx context.Context, args ...string) error {
	old := d.current()
	old.Close()
	if err := d.run(ctx, args); err != nil {
		return fmt.Errorf("restart mock driver: %w", err)
	}
	return nil
}

// Stop ends the process by SIGTERM and removes its files, unless Options.Dir was given. A driver that was killed
// before, or that killed itself because of a fault, is no error. A driver that ended in another way is one.
func (d *Driver) Stop() error {
	var err error
	if p := d.current(); p != nil {
		if err = p.Stop(stopGrace); killed(err) {
			err = nil
		}
		p.Close()
	}
	return errors.Join(err, d.remove())
}

func killed(err error) bool {
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (d *Driver) remove() error {
	var err error
	if d.conn != nil {
		err = d.conn.Close()
		d.conn = nil
	}
	if d.owned != nil {
		err = errors.Join(err, d.owned.Remove())
		d.owned = nil
	}
	return err
}

func (d *Driver) current() *process.Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process
}

// Conn is a connection to the driver. It reconnects by itself after a restart, and until then calls wait, up to their
// deadline. Stop closes it.
func (d *Driver) Conn() *grpc.ClientConn { return d.conn }

// Controller is a client of the controller service on Conn.
func (d *Driver) Controller() csi.ControllerClient { return csi.NewControllerClient(d.conn) }

// Socket is the path of the driver's socket, and Endpoint the same as a URL.
func (d *Driver) Socket() string { return filepath.Join(d.socketDir, "csi.sock") }

// Endpoint is the driver's socket as a URL.
func (d *Driver) Endpoint() string { return "unix://" + d.Socket() }

// Name is the driver's name.
func (d *Driver) Name() string {
	if d.options.Name == "" {
		return "mock.csi-reclaimer.io"
	}
	return d.options.Name
}

// LedgerPath is the file of the ledger.
func (d *Driver) LedgerPath() string { return filepath.Join(d.dir, "ledger.jsonl") }

// LogPath is the file of the driver's standard output and error.
func (d *Driver) LogPath() string { return filepath.Join(d.dir, "mock-driver.log") }

// VolumesDir holds a directory for each volume, named after its handle.
func (d *Driver) VolumesDir() string { return filepath.Join(d.stateDir(), "volumes") }

func (d *Driver) stateDir() string    { return filepath.Join(d.dir, "state") }
func (d *Driver) addressFile() string { return filepath.Join(d.dir, "fault-address") }

// Ledger returns all entries of the ledger.
func (d *Driver) Ledger() ([]ledger.Entry, error) { return ledger.Read(d.LedgerPath()) }

// Calls returns the calls that the driver received, of the given methods or of all.
func (d *Driver) Calls(methods ...string) ([]ledger.Call, error) {
	entries, err := d.Ledger()
	return ledger.Select(ledger.Calls(entries), methods...), err
}

// WaitCalls waits until enough accepts the calls of the given methods, or of all methods, and returns them.
func (d *Driver) WaitCalls(ctx context.Context, enough func([]ledger.Call) bool, methods ...string) ([]ledger.Call,
	error) {
	calls, err := ledger.Wait(ctx, d.LedgerPath(),
		func(calls []ledger.Call) bool { return enough(ledger.Select(calls, methods...)) })
	return ledger.Select(calls, methods...), err
}

// Volumes returns the volumes on disk, in the order of their handles. It may be called while the driver works, or is
// dead.
func (d *Driver) Volumes() ([]backend.Volume, error) { return disk.Volumes(d.stateDir()).Read() }

// Snapshots returns the snapshots on disk.
func (d *Driver) Snapshots() ([]backend.Snapshot, error) { return disk.Snapshots(d.stateDir()).Read() }

// SetFaults replaces the fault plan of the running driver.
func (d *Driver) SetFaults(ctx context.Context, p faults.Plan) error {
	c, err := d.faultClient()
	if err != nil {
		return err
	}
	return c.Set(ctx, p)
}

// ClearFaults makes the running driver behave.
func (d *Driver) ClearFaults(ctx context.Context) error { return d.SetFaults(ctx, faults.Plan{}) }

// FaultStatus returns the fault plan of the running driver and how often each rule was applied.
func (d *Driver) FaultStatus(ctx context.Context) (faults.Status, error) {
	c, err := d.faultClient()
	if err != nil {
		return faults.Status{}, err
	}
	return c.Status(ctx)
}

// faultClient finds the address that the driver wrote before it began to serve.
func (d *Driver) faultClient() (faults.Client, error) {
	address, err := os.ReadFile(d.addressFile())
	if err != nil {
		return faults.Client{}, fmt.Errorf("find fault address: %w", err)
	}
	return faults.Client{Address: strings.TrimSpace(string(address))}, nil
}

// logLines is how much of a driver's log a failed test shows.
const logLines = 20

// ForTest starts a driver that ends with the test, and shows its log if the test has failed.
func ForTest(t process.TB, o Options) *Driver {
	t.Helper()
	d, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the mock driver, which may be longer:\n%s", d.current().LogTail(logLines))
		}
		if err := d.Stop(); err != nil {
			t.Errorf("stop mock driver: %v", err)
		}
	})
	return d
}
