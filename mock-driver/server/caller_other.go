//go:build !linux

package server

import "net"

// processAt cannot tell here whose the other end is.
func processAt(net.Conn) int { return 0 }
