//go:build unix

package process_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// roleVariable makes the test binary play a program under test, or a test run that starts one.
const roleVariable = "PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(goroutines.Run(m))
		return
	}
	play(role)
}

// play never returns. The waiting roles wait forever: only the tested code ends them.
func play(role string) {
	switch role {
	case "server":
		fmt.Println("ready", os.Getpid())
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		<-term
		fmt.Println("ending")
		os.Exit(0)
	case "crasher":
		fmt.Println("out of", "luck")
		os.Exit(3)
	case "deaf":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		fmt.Println("ready")
		time.Sleep(time.Hour)
	case "ticker":
		for i := 0; ; i++ {
			fmt.Println("tick", i)
			time.Sleep(time.Millisecond)
		}
	case "busy":
		fmt.Println("ready")
		for range 4 {
			go func() {
				for {
					_ = os.Getpid()
				}
			}()
		}
		time.Sleep(time.Hour)
	case "forker":
		// Its child holds the same standard output, and is started without this package.
		_ = os.Setenv(roleVariable, "deaf")
		child := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}}
		if _, err := syscall.ForkExec(os.Args[0], os.Args, child); err != nil {
			panic(err)
		}
		fmt.Println("forked")
		time.Sleep(time.Hour)
	case "parent":
		startChild()
		fmt.Println("started")
		time.Sleep(time.Hour)
	case "panicking parent":
		startChild()
		panic("a test that panics")
	case "exiting parent":
		startChild()
		os.Exit(0)
	case "parent with dead thread":
		// The goroutine that calls Start dies together with its thread, as threads of a Go program do.
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			startChild()
		}()
		<-done
		fmt.Println("started")
		time.Sleep(time.Hour)
	}
	panic("unknown role " + role)
}

// startChild starts a process that holds this one's standard output, which the test reads, and ignores
// all that can be ignored.
func startChild() {
	child, err := process.Start(process.Command{
		Path: os.Args[0], Env: []string{roleVariable + "=deaf"}, Stdout: os.Stdout,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("child", child.PID())
}

// start starts this test binary in a role and waits for text in its log.
func start(t *testing.T, role, text string) *process.Process {
	t.Helper()
	p, err := process.Start(process.Command{Name: role, Path: os.Args[0], Env: []string{roleVariable + "=" + role}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	waitLog(t, p, text)
	return p
}

func waitLog(t *testing.T, p *process.Process, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	must.OK(t, p.WaitLog(ctx, text))
}

func TestStop(t *testing.T) {
	for how, tc := range map[string]struct {
		role, ready string
		before      func(*process.Process) error
		grace       time.Duration
		want        error
	}{
		"ends in its grace":  {role: "server", ready: "ready", grace: deadline},
		"dies of the signal": {role: "ticker", ready: "tick", grace: deadline},
		"is killed after its grace": {role: "deaf", ready: "ready", grace: 50 * time.Millisecond,
			want: process.ErrGraceExceeded},
		"hears the signal though it paused": {role: "server", ready: "ready", grace: deadline,
			before: (*process.Process).Pause},
		"does nothing after Kill": {role: "server", ready: "ready", grace: deadline,
			before: func(p *process.Process) error { p.Kill(); return nil }},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := start(t, tc.role, tc.ready)
			if tc.before != nil {
				must.OK(t, tc.before(p))
			}
			if err := p.Stop(tc.grace); !errors.Is(err, tc.want) {
				t.Errorf("Stop: %v, want %v", err, tc.want)
			}
			if p.Running() {
				t.Error("still running")
			}
			if err := p.Stop(tc.grace); err != nil {
				t.Errorf("second Stop: %v, want nil", err)
			}
			if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("Signal after the end: %v, want ErrProcessDone", err)
			}
		})
	}
}

func TestExitStatusOfProcess(t *testing.T) {
	p := start(t, "crasher", "luck")
	select {
	case <-p.Done():
	case <-time.After(deadline):
		t.Fatal("did not end")
	}
	var exit *exec.ExitError
	if err := p.Err(); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.HasPrefix(err.Error(), "crasher: ") {
		t.Errorf("Err: %v, want crasher: exit status 3", err)
	}
	if err := p.Stop(0); !errors.As(err, &exit) {
		t.Errorf("Stop of what crashed: %v, want its exit status", err)
	}
	if err := p.WaitLog(t.Context(), "never said"); err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("WaitLog: %v, want the end of the log", err)
	}
}

func TestKillEndsChildProcesses(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	p, err := process.Start(process.Command{
		Path: os.Args[0], Env: []string{roleVariable + "=forker"}, Stdout: write,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_ = write.Close()
	must.OK(t, read.SetReadDeadline(time.Now().Add(deadline)))
	var said []byte
	for buf := make([]byte, 64); !bytes.Contains(said, []byte("forked")) || !bytes.Contains(said, []byte("ready")); {
		n := must.Get(read.Read(buf))(t)
		said = append(said, buf[:n]...)
	}
	// Only the leader ends, as in a crash; its child holds the pipe.
	must.OK(t, p.Signal(syscall.SIGKILL))
	if _, err := io.Copy(io.Discard, read); err != nil {
		t.Errorf("what the process forked is still there: %v", err)
	}
}

func TestPauseAndResume(t *testing.T) {
	dir := t.TempDir()
	logFile := filepath.Join(dir, "ticker.log")
	p, err := process.Start(process.Command{
		Path: os.Args[0], Env: []string{roleVariable + "=ticker"}, LogFile: logFile,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	waitLog(t, p, "tick 3\n")
	size := func() int64 {
		info := must.Get(os.Stat(logFile))(t)
		return info.Size()
	}
	must.OK(t, p.Pause())
	if status := waitFor(t, p.PID(), syscall.WUNTRACED); !status.Stopped() {
		t.Fatalf("status %#x, want stopped", status)
	}
	frozen := size()
	must.OK(t, p.Resume())
	if status := waitFor(t, p.PID(), syscall.WCONTINUED); !status.Continued() {
		t.Fatalf("status %#x, want continued", status)
	}
	for end := time.Now().Add(deadline); size() == frozen; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not tick again")
		}
	}
}

// waitFor waits for a change of a child's state, which the kernel reports once all of its threads have stopped, or
// continue.
func waitFor(t *testing.T, pid, change int) (status syscall.WaitStatus) {
	t.Helper()
	changed := make(chan error, 1)
	go func() {
		_, err := syscall.Wait4(pid, &status, change, nil)
		changed <- err
	}()
	select {
	case err := <-changed:
		must.OK(t, err)
	case <-time.After(deadline):
		t.Fatal("the state of the process has not changed")
	}
	return status
}

func TestLogOfRestartedProgram(t *testing.T) {
	logFile := filepath.Join(t.TempDir(), "log")
	var tee bytes.Buffer
	c := process.Command{Path: "/bin/sh", Args: []string{"-c", "echo $WORD"}, LogFile: logFile, Tee: &tee}
	for _, word := range []string{"first", "second"} {
		c.Env = []string{"WORD=" + word}
		p := must.Get(process.Start(c))(t)
		<-p.Done()
		if got := p.LogTail(10); got != word {
			t.Errorf("LogTail: %q, want %q", got, word)
		}
		p.Close()
	}
	whole := must.Get(os.ReadFile(logFile))(t)
	if string(whole) != "first\nsecond\n" || tee.String() != string(whole) {
		t.Errorf("log %q, tee %q, want both runs in each", whole, tee.String())
	}
}

func TestFailedStartReportsCause(t *testing.T) {
	if _, err := process.Start(process.Command{Name: "driver", Path: "/nowhere/driver"}); !errors.Is(err,
		os.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "start driver: ") {
		t.Errorf("missing program: %v", err)
	}
	if _, err := process.Start(process.Command{Path: "/bin/sh", LogFile: "/nowhere/log"}); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("missing log folder: %v", err)
	}
}

func TestRun(t *testing.T) {
	sh := func(script string) process.Command {
		return process.Command{Path: "/bin/sh", Args: []string{"-c", script}}
	}
	if err := process.Run(t.Context(), sh("exit 0")); err != nil {
		t.Errorf("exit 0: %v", err)
	}
	var exit *exec.ExitError
	if err := process.Run(t.Context(), sh("echo because >&2; exit 7")); !errors.As(err, &exit) ||
		exit.ExitCode() != 7 || !strings.Contains(err.Error(), "because") {
		t.Errorf("exit 7: %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, io.ErrClosedPipe)
	defer cancel()
	if err := process.Run(ctx, sh("sleep 3600")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("ended context: %v, want its cause", err)
	}
}

const deadline = 2 * time.Minute

// family is a program that started a child of its own by this package. The child shares the
// program's standard output: its end of file means that both are gone, zombies or not.
type family struct {
	parent *exec.Cmd
	output *bufio.Reader
	pipe   *os.File
	child  int
}

// startFamily starts the program and waits until it has named its child and each of words was said.
func startFamily(t *testing.T, role string, words ...string) *family {
	t.Helper()
	// Under nohup a hang-up is ignored, and child processes inherit that. A handled signal is deadly again in child
	// processes.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f := &family{parent: exec.Command(os.Args[0]), pipe: read, output: bufio.NewReader(read)}
	f.parent.Env = append(os.Environ(), roleVariable+"="+role)
	f.parent.Stdout = write
	must.OK(t, f.parent.Start())
	_ = write.Close()
	t.Cleanup(func() {
		_ = f.parent.Process.Kill()
		_ = f.parent.Wait()
		_ = read.Close()
	})
	must.OK(t, read.SetReadDeadline(time.Now().Add(deadline)))
	for missing := slices.Clone(words); f.child == 0 || len(missing) > 0; {
		line, err := f.output.ReadString('\n')
		if err != nil {
			t.Fatalf("read what the family says: %v", err)
		}
		_, _ = fmt.Sscanf(line, "child %d", &f.child)
		missing = slices.DeleteFunc(missing, func(word string) bool { return line == word+"\n" })
	}
	return f
}

// waitGone fails the test unless parent and child end within the deadline.
func (f *family) waitGone(t *testing.T) {
	t.Helper()
	if _, err := io.Copy(io.Discard, f.output); err != nil {
		_ = syscall.Kill(f.child, syscall.SIGKILL)
		t.Errorf("child %d is still there: %v", f.child, err)
	}
}

func TestChildEndsWithParent(t *testing.T) {
	for how, tc := range map[string]struct {
		role   string
		signal syscall.Signal // sent once the child runs; without, the parent ends by itself
	}{
		"the parent returns":           {role: "exiting parent"},
		"the parent panics":            {role: "panicking parent"},
		"the parent is interrupted":    {role: "parent", signal: syscall.SIGINT},
		"the parent is terminated":     {role: "parent", signal: syscall.SIGTERM},
		"the parent is killed":         {role: "parent", signal: syscall.SIGKILL},
		"the parent hangs up":          {role: "parent", signal: syscall.SIGHUP},
		"the parent dumps its threads": {role: "parent", signal: syscall.SIGQUIT},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var words []string
			if tc.signal != 0 {
				words = []string{"ready"}
			}
			f := startFamily(t, tc.role, words...)
			if tc.signal != 0 {
				must.OK(t, f.parent.Process.Signal(tc.signal))
			}
			f.waitGone(t)
		})
	}
}

// The kernel sends the signal when the forking thread ends. A child must not die because a goroutine ended its thread.
func TestChildOutlivesItsThread(t *testing.T) {
	t.Parallel()
	f := startFamily(t, "parent with dead thread", "ready", "started")
	// No event shows that the child was not killed. A thread's end takes microseconds; half a second shows the trap each
	// time.
	must.OK(t, f.pipe.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
	if err := syscall.Kill(f.child, 0); err != nil {
		t.Fatalf("child %d: %v", f.child, err)
	}
	if _, err := f.output.ReadByte(); !os.IsTimeout(err) {
		t.Fatalf("family says %v, want silence", err)
	}
	if err := syscall.Kill(f.child, 0); err != nil {
		t.Fatalf("child %d is gone: %v", f.child, err)
	}
	must.OK(t, f.pipe.SetReadDeadline(time.Now().Add(deadline)))
	must.OK(t, f.parent.Process.Kill())
	f.waitGone(t)
}
