//go:build linux && !processwatchdog

package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr has the kernel kill the process when the thread that forked it dies.
// Between fork and exec the child checks that its parent has not died already (syscall.forkAndExecInChild1).
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// watch does nothing: the kernel does.
func watch(int) (release func(), err error) { return func() {}, nil }

// waitStopped returns once all threads of a child are stopped, or the child has ended. A signal is delivered when one
// of the threads runs next; until then, the others go on.
func waitStopped(pid int) error {
	for {
		// WNOWAIT leaves the state to exec.Cmd.Wait.
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD): // it has ended, and was waited for
			return nil
		default:
			return err
		}
	}
}
