// Package socket listens on Unix sockets, replaces the socket of a process that has ended, and identifies the calling
// process.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// maxSocketPath is the maximum length of sockaddr_un on Linux, without the final zero byte.
const maxSocketPath = 107

// ParseEndpoint returns the socket path of an endpoint such as unix:///run/csi/csi.sock.
func ParseEndpoint(endpoint string) (string, error) {
	path := endpoint
	if scheme, rest, has := strings.Cut(endpoint, ":"); has {
		if scheme != "unix" {
			return "", fmt.Errorf("endpoint %q: scheme %q is not served, want unix:///absolute/path", endpoint, scheme)
		}
		path = rest
		if host, slash := strings.CutPrefix(rest, "//"); slash {
			path = host
		}
	}
	switch {
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("endpoint %q: want unix:///absolute/path", endpoint)
	case len(path) > maxSocketPath:
		return "", fmt.Errorf("endpoint %q: the path has %d bytes, a unix socket's has at most %d", endpoint, len(path),
			maxSocketPath)
	}
	return filepath.Clean(path), nil
}

// dialTimeout is the time that a live server has to accept a connection.
const dialTimeout = time.Second

// Listen listens on a unix socket, after it has removed the socket of a dead predecessor. It returns an error for the
// socket of a live server and for any other file.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if err := clearStale(ctx, path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	// A process that may connect may delete volumes, so only owner and group may: a pod's containers are one of the two.
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), l.Close())
	}
	return l, nil
}

// ListenBelow is Listen, and creates the directory of the socket if necessary.
func ListenBelow(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket %q: the path has %d bytes, a unix socket's has at most %d", path, len(path),
			maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	return Listen(ctx, path)
}

func clearStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("endpoint: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("endpoint %q is there already and is no socket: remove it, or choose another path", path)
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	c, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("endpoint %q: another server listens there", path)
	case errors.Is(err, syscall.ECONNREFUSED):
	default:
		return fmt.Errorf("endpoint %q: find out whether another server listens there: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}
