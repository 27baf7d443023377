package mounts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestKernelMounts runs without the mount program. It needs root.
func TestKernelMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	// The thread has its own mount namespace, and ends with this goroutine.
	runtime.LockOSThread()
	if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Skipf("make mount namespace: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := exec.LookPath("mount"); err == nil {
		t.Fatal("the program mount is found")
	}
	dir := t.TempDir()
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "target")
	for _, path := range []string{source, target} {
		must.OK(t, os.Mkdir(path, 0o750))
	}
	m := kernelMounter{}
	for options, want := range map[string]error{"bind": nil, "bind,ro": syscall.EROFS} {
		must.OK(t, m.Mount(source, target, "", strings.Split(options, ",")))
		if err := os.WriteFile(filepath.Join(target, "file"), nil, 0o600); !errors.Is(err, want) {
			t.Errorf("write to a mount with %s: %v, want %v", options, err, want)
		}
		must.OK(t, m.Unmount(target))
		if _, err := os.Stat(filepath.Join(target, "file")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("still mounted with %s: %v", options, err)
		}
	}
	if err := m.Unmount(target); err == nil {
		t.Error("unmounted what is not mounted")
	}
	if err := m.Mount(filepath.Join(dir, "none"), target, "", nil); err == nil {
		t.Error("mounted what is not there")
	}
}
