//go:build unix && (!linux || processwatchdog)

package process

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// The tag processwatchdog puts this file in place of the Linux one, so that it can be tested there.

// watchdogScript waits for the end of its standard input, which comes when the parent dies in any way, and kills the
// process group.
const watchdogScript = `read -r _; kill -s KILL -- "-$1"`

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// watch starts a shell that kills the process group of pid when this program ends. The few instructions between the two
// forks, of the process and of the shell, are not covered.
func watch(pid int) (release func(), err error) {
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "watchdog", strconv.Itoa(pid))
	cmd.SysProcAttr = sysProcAttr() // a Ctrl-C must not end the watchdog before its work
	var alive io.WriteCloser
	if alive, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	return func() {
		// Killed before its input ends, or it would kill a group that may no longer be ours.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = alive.Close()
	}, nil
}

// waitStopped does nothing: a portable wait would take the exit status from exec.Cmd.Wait.
func waitStopped(int) error { return nil }
