package socket

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

type knowCallers struct {
	credentials.TransportCredentials
}

// Credentials returns transport credentials without authentication, by which Caller knows the caller's process.
func Credentials() credentials.TransportCredentials { return knowCallers{insecure.NewCredentials()} }

// ServerHandshake implements credentials.TransportCredentials.
func (knowCallers) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}
	return conn, caller{info, processAt(conn)}, nil
}

// Clone implements credentials.TransportCredentials.
func (k knowCallers) Clone() credentials.TransportCredentials {
	return knowCallers{k.TransportCredentials.Clone()}
}

// caller identifies the process that opened a connection.
type caller struct {
	credentials.CommonAuthInfo
	pid int
}

// AuthType implements credentials.AuthInfo.
func (caller) AuthType() string { return "insecure" }

// Caller returns the process id of a call's caller, or 0 if the system does not report it.
func Caller(ctx context.Context) int {
	if p, ok := peer.FromContext(ctx); ok {
		if from, ok := p.AuthInfo.(caller); ok {
			return from.pid
		}
	}
	return 0
}
