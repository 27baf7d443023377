package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/mount-utils"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

// dataDir is where in a volume's directory its data are.
const dataDir = "data"

// mounts shows volumes to pods, as bind mounts of directories. Nil is a driver that mounts nothing. All methods are
// idempotent: whatever records say, the kernel knows what is mounted.
type mounts struct {
	volumes string // holds a directory for each volume, named after its handle
	mounter mounter
}

// mounter is what is needed of a mount.Interface.
type mounter interface {
	IsMountPoint(path string) (bool, error)
	Mount(source, target, fsType string, options []string) error
	Unmount(target string) error
}

// newMounter mounts on this machine.
func newMounter() mounter { return kernelMounter{mount.New("")} }

// kernelMounter mounts by system calls: the driver's image has no program mount.
type kernelMounter struct{ mount.Interface }

// source returns the directory of a volume's data.
func (m *mounts) source(volume string) (string, error) {
	path := filepath.Join(m.volumes, volume, dataDir)
	// Not MkdirAll: a volume that is deleted meanwhile must not come back.
	if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make directory for data: %w", err)
	}
	return path, nil
}

// stage mounts a volume at a staging path.
func (m *mounts) stage(volume, path string) error {
	if m == nil {
		return nil
	}
	source, err := m.source(volume)
	if err != nil {
		return err
	}
	return m.bind(source, path, false)
}

// publish mounts a volume at a target path: what is mounted at the staging path, or the volume if there is none.
func (m *mounts) publish(volume, stagedAt, path string, readOnly bool) (err error) {
	if m == nil {
		return nil
	}
	source := stagedAt
	if stagedAt == "" {
		source, err = m.source(volume)
	} else if staged, found := m.mounter.IsMountPoint(stagedAt); found != nil || !staged {
		err = fmt.Errorf("nothing is mounted at staging_target_path %q: %w", stagedAt,
			errors.Join(found, backend.ErrNotPrepared))
	}
	if err != nil {
		return err
	}
	return m.bind(source, path, readOnly)
}

func (m *mounts) bind(source, path string, readOnly bool) error {
	switch mounted, err := m.mounter.IsMountPoint(path); {
	case err != nil:
		return fmt.Errorf("look for a mount at %q: %w", path, err)
	case mounted:
		return nil
	}
	options := []string{"bind"}
	if readOnly {
		options = append(options, "ro")
	}
	return m.mounter.Mount(source, path, "", options)
}

// unmount ends what stage or publish did. A path that is gone is not mounted.
func (m *mounts) unmount(path string) error {
	if m == nil {
		return nil
	}
	mounted, err := m.mounter.IsMountPoint(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for a mount at %q: %w", path, err)
	case !mounted:
		return nil
	}
	return m.mounter.Unmount(path)
}
