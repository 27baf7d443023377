//go:build unix

package process_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"
)

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
	if err := f.parent.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	t.Cleanup(func() {
		_ = f.parent.Process.Kill()
		_ = f.parent.Wait()
		_ = read.Close()
	})
	if err := read.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
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
				if err := f.parent.Process.Signal(tc.signal); err != nil {
					t.Fatal(err)
				}
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
	if err := f.pipe.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(f.child, 0); err != nil {
		t.Fatalf("child %d: %v", f.child, err)
	}
	if _, err := f.output.ReadByte(); !os.IsTimeout(err) {
		t.Fatalf("family says %v, want silence", err)
	}
	if err := syscall.Kill(f.child, 0); err != nil {
		t.Fatalf("child %d is gone: %v", f.child, err)
	}
	if err := f.pipe.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if err := f.parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.waitGone(t)
}
