//go:build linux && !processwatchdog

package process

import "syscall"

// sysProcAttr has the kernel kill the process when the thread that forked it dies.
// Between fork and exec the child checks that its parent has not died already (syscall.forkAndExecInChild1).
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// watch does nothing: the kernel does.
func watch(int) (release func(), err error) { return func() {}, nil }
