//go:build !linux

package socket

import "net"

// processAt returns 0, because this system does not report the peer's process id.
func processAt(net.Conn) int { return 0 }
