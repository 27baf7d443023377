package csidriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// ErrAddress is wrapped by every error about an address that can never become a CSI socket.
var ErrAddress = errors.New("not the address of a CSI socket")

// maxSocketPath is the longest path of a unix socket: sun_path of sockaddr_un has 108 bytes on Linux, including the
// final NUL (unix(7)).
const maxSocketPath = 107

// SocketPath returns the file of a CSI address, which is an absolute path or one with the scheme unix:// (CSI spec,
// "Architecture": a unix domain socket on the host).
//
// A missing file is no error, because the driver may start later. An error wraps ErrAddress and means that waiting is
// useless, for example because of another scheme, a missing folder, a symbolic link, or a file that is no socket.
//
// SocketPath does not check permissions. A process that may write to the folder can replace the socket, act as the
// driver and receive its secrets; on the socket that looks like a restart of the driver. But an emptyDir, the usual
// place of the socket, always has mode 0777 (the kubelet's pkg/volume/emptydir), and drivers run as any user, so a
// check of either would refuse most pods. Only the pod's own containers see an emptyDir; a hostPath folder should
// belong to root alone.
func SocketPath(address string) (string, error) {
	path, err := socketFile(address)
	if err != nil {
		return "", err
	}
	folder := filepath.Dir(path)
	info, err := os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: %q: its folder %q does not exist; mount the folder of the driver's socket there",
			ErrAddress, address, folder)
	case err != nil:
		return "", fmt.Errorf("%w: %q: %w", ErrAddress, address, err)
	case !info.IsDir():
		return "", fmt.Errorf("%w: %q: %q is not a folder", ErrAddress, address, folder)
	}

	// Lstat, because a link could later point to another driver's socket, which would then get the deletions.
	info, err = os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, nil
	case err != nil:
		return "", fmt.Errorf("%w: %q: %w", ErrAddress, address, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return "", fmt.Errorf("%w: %q is a symbolic link; give the socket itself", ErrAddress, address)
	case info.Mode()&fs.ModeSocket == 0:
		return "", fmt.Errorf("%w: %q is a %s; give the path of the driver's socket", ErrAddress, address,
			kindOf(info.Mode()))
	}
	return path, nil
}

func socketFile(address string) (string, error) {
	path := address
	if scheme, rest, found := strings.Cut(address, "://"); found {
		if scheme != "unix" {
			return "", fmt.Errorf("%w: %q: the scheme %q is not supported; use unix:///path/of/the/socket", ErrAddress,
				address, scheme)
		}
		path = rest
	}
	switch {
	case path == "":
		return "", fmt.Errorf("%w: %q names no file; use unix:///path/of/the/socket", ErrAddress, address)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("%w: %q is not an absolute path; use unix:///path/of/the/socket", ErrAddress, address)
	case len(path) > maxSocketPath:
		return "", fmt.Errorf("%w: %q has %d bytes, a unix socket's path has at most %d", ErrAddress, address, len(path),
			maxSocketPath)
	}
	return filepath.Clean(path), nil
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m.IsRegular():
		return "regular file"
	}
	return "file of type " + m.Type().String()
}

// reach returns the error of a connection to a socket. gRPC does not tell it, because it repeats the attempt.
func reach(ctx context.Context, path string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return conn.Close()
}

// socketState returns keys and values for the log about a socket, given the error of a connection to it. Drivers that
// run as root create sockets that the default user of the image may not open, and nothing else says so.
func socketState(path string, err error) []any {
	state := []any{"socket", path}
	if err == nil {
		return state
	}
	state = append(state, "err", err)
	info, statErr := os.Lstat(path)
	if !errors.Is(err, fs.ErrPermission) || statErr != nil {
		return state
	}
	state = append(state, "mode", info.Mode().Perm().String())
	if user, group, known := ownerOf(info); known {
		state = append(state, "owner", user, "group", group)
	}
	return append(state, "ownUser", os.Getuid(), "next", "run csi-reclaimer as a user that may open the socket "+
		"(securityContext, docs/how-to/install.md#drivers-that-run-as-root)")
}
