package socket

import (
	"net"
	"syscall"
)

// processAt returns the process id of a unix socket's peer (SO_PEERCRED in unix(7)), or 0 if it is unknown.
func processAt(conn net.Conn) (pid int) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	if err := raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	}); err != nil {
		return 0
	}
	return pid
}
