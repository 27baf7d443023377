//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// ErrGraceExceeded says that a process did not end within its grace after SIGTERM and was killed.
var ErrGraceExceeded = errors.New("still running after its grace, killed")

// groupOutputDelay bounds the wait for output that descendants of an ended
// process still hold open. It matters only with Command.Tee and where Command.Stdout is no *os.File.
const groupOutputDelay = 2 * time.Second

// interruptGrace is the time that Run leaves a program to clean up after SIGINT.
const interruptGrace = 5 * time.Second

// Command describes a program to start.
type Command struct {
	// Name says in errors which process is meant. Default: the base name of Path.
	Name string
	// Path of the program, looked up in PATH when it has no slash.
	Path string
	// Args are the arguments without the program's name.
	Args []string
	// Env is added to the environment of the calling program and wins over it.
	Env []string
	// Dir is the working directory. Default: the calling program's.
	Dir string
	// LogFile receives standard error and, without Stdout, standard output. It is appended to,
	// so that a restarted program continues its log; its folder must exist.
	// Default: a file without a name, which [Process.LogTail] and [Process.WaitLog] can still read.
	LogFile string
	// Stdin is standard input. Default: none.
	Stdin io.Reader
	// Stdout receives standard output instead of the log. Optional.
	Stdout io.Writer
	// Tee receives a copy of the log as it is written. Optional.
	Tee io.Writer
}

// Process is a running or ended program. All methods may be called at any time
// from any goroutine.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  *log
	done chan struct{}
	err  error // set before done is closed

	mu      sync.Mutex
	stopped bool // we ended it: its exit status is no news
}

// Start starts a program and returns once it has been executed, which is not yet when it is
// ready. The process runs until it ends by itself, is stopped or killed, or the calling
// program ends.
func Start(c Command) (*Process, error) {
	if c.Name == "" {
		c.Name = filepath.Base(c.Path)
	}
	output, err := openLog(c.LogFile)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = output.file, output.file
	if c.Tee != nil {
		tee := io.MultiWriter(output.file, c.Tee)
		cmd.Stdout, cmd.Stderr = tee, tee
	}
	cmd.Stdin = c.Stdin
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	cmd.SysProcAttr = sysProcAttr()
	cmd.WaitDelay = groupOutputDelay

	p := &Process{name: c.Name, cmd: cmd, log: output, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, errors.Join(err, output.file.Close()))
	}
	return p, nil
}

// run forks the process, waits for its end and reaps it.
//
// The kernel's parent death signal is sent when the *thread* that forked dies, not the process
// (prctl(2), golang/go#27505). An ordinary goroutine's thread may be retired at any time; this
// one is locked to its thread, which so lives exactly as long as the process it forked.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	unwatch, err := watch(p.PID())
	if err != nil {
		started <- errors.Join(err, p.signalGroup(syscall.SIGKILL), p.cmd.Wait())
		return
	}
	started <- nil

	err = p.cmd.Wait()
	// Kill the children that the process left running. The group's number is not reused yet, because the kernel assigns
	// numbers in a circle.
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	unwatch()
	if err != nil {
		p.err = fmt.Errorf("%s: %w", p.name, err)
	}
	close(p.done)
}

// Run runs a program to its end. When ctx ends first the process group is interrupted as by
// Ctrl-C, killed if that does not end it within 5 seconds, and the error is the
// context's cause. An exit status other than 0 is an *exec.ExitError with the end of the log.
func Run(ctx context.Context, c Command) error {
	p, err := Start(c)
	if err != nil {
		return err
	}
	defer p.Close()
	select {
	case <-p.Done():
		if err := p.Err(); err != nil {
			return fmt.Errorf("%w\n%s", err, p.LogTail(20))
		}
		return nil
	case <-ctx.Done():
		_ = p.signalGroup(syscall.SIGINT)
		select {
		case <-p.Done():
		case <-time.After(interruptGrace):
			p.Kill()
		}
		return fmt.Errorf("%s: %w", p.name, context.Cause(ctx))
	}
}

// Name is the name given in the Command.
func (p *Process) Name() string { return p.name }

// PID is the process number, also after the process has ended.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed once the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running says whether the process has not ended yet. A paused process is running.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err says how the process ended: nil while it runs and after exit status 0,
// otherwise an error that wraps *exec.ExitError, also when it was stopped or killed from here.
func (p *Process) Err() error {
	if p.Running() {
		return nil
	}
	return p.err
}

// Stop sends SIGTERM, kills the process if it has not ended after grace, and returns once it is reaped. A paused
// process is resumed, so that it receives the signal.
//
// The error is nil if the process ended with status 0 or of the SIGTERM itself, [ErrGraceExceeded] if it had to be
// killed, and its exit error otherwise. For a process that was stopped or killed before, Stop does nothing. For a
// process that ended by itself it returns [Process.Err].
func (p *Process) Stop(grace time.Duration) error {
	if !p.markStopped() {
		<-p.done
		return nil
	}
	if !p.Running() {
		return p.Err()
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.signalGroup(syscall.SIGCONT)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.signalGroup(syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("stop %s: %w", p.name, ErrGraceExceeded)
	}
	if p.endedBy(syscall.SIGTERM) {
		return nil
	}
	return p.err
}

// Kill ends the process and all it forked with SIGKILL and returns once it has been reaped.
// It does nothing for a process that has ended.
func (p *Process) Kill() {
	p.markStopped()
	_ = p.signalGroup(syscall.SIGKILL)
	<-p.done
}

// Close kills the process if it still runs and closes its log. [Process.LogTail]
// knows nothing any more afterwards when the log has no name.
func (p *Process) Close() {
	p.Kill()
	p.log.close()
}

// Pause freezes the process and all it forked with SIGSTOP: sockets stay open, nothing answers. On Linux it returns
// once each thread of the process has stopped, so that a later write is not followed by one of the process.
func (p *Process) Pause() error {
	if err := p.signalGroup(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := waitStopped(p.PID()); err != nil {
		return fmt.Errorf("wait until %s has stopped: %w", p.name, err)
	}
	return nil
}

// Resume ends a Pause.
func (p *Process) Resume() error { return p.signalGroup(syscall.SIGCONT) }

// Signal sends a signal to the process alone. The error is os.ErrProcessDone if it has ended.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// signalGroup signals the process and all it forked.
func (p *Process) signalGroup(sig syscall.Signal) error {
	err := os.ErrProcessDone
	if p.Running() {
		err = syscall.Kill(-p.PID(), sig)
	}
	if errors.Is(err, syscall.ESRCH) {
		err = os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// markStopped notes that we end the process, and says whether this is the first to do so.
func (p *Process) markStopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.stopped
	p.stopped = true
	return first
}

func (p *Process) endedBy(sig syscall.Signal) bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == sig
}
