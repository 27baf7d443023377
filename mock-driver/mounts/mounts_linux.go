package mounts

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Mount makes a bind mount, which is read-only with the option ro, and supports no other mounts.
func (kernelMounter) Mount(source, target, _ string, options []string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %q to %q: %w", source, target, err)
	}
	if !slices.Contains(options, "ro") {
		return nil
	}
	// The kernel makes a bind mount read-only in a second call, which sets the other flags as well.
	var now unix.Statfs_t
	err := unix.Statfs(target, &now)
	if err == nil {
		kept := uintptr(now.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		err = unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|kept, "")
	}
	if err != nil {
		_ = unix.Unmount(target, 0) // otherwise the pod could write
		return fmt.Errorf("bind %q to %q read-only: %w", source, target, err)
	}
	return nil
}

// Unmount removes a mount.
func (kernelMounter) Unmount(target string) error {
	if err := unix.Unmount(target, 0); err != nil {
		return &os.PathError{Op: "unmount", Path: target, Err: err}
	}
	return nil
}
