// Package mounts mounts volumes for pods, as bind mounts of directories, and copies their data.
package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/mount-utils"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

// dataDir is the directory for data in a volume's directory.
const dataDir = "data"

// Mounts mounts volumes, or nothing if it is nil. All methods are idempotent, and rely on the kernel's mounts, not on
// records.
type Mounts struct {
	volumes   string // holds a directory for each volume, named after its handle
	snapshots string // the same for snapshots
	mounter   mounter
}

// mounter is the part of mount.Interface that the driver uses.
type mounter interface {
	IsMountPoint(path string) (bool, error)
	Mount(source, target, fsType string, options []string) error
	Unmount(target string) error
}

// New returns the Mounts of the directories that hold the volumes and the snapshots.
func New(volumes, snapshots string) *Mounts {
	return &Mounts{volumes: volumes, snapshots: snapshots, mounter: kernelMounter{mount.New("")}}
}

// kernelMounter mounts by system calls, because the driver's image has no mount program.
type kernelMounter struct{ mount.Interface }

// source returns the directory of a volume's data, and creates it if necessary.
func (m *Mounts) source(volume string) (string, error) {
	path := filepath.Join(m.volumes, volume, dataDir)
	// Not MkdirAll, which would recreate the directory of a volume that is deleted at the same time.
	if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make directory for data: %w", err)
	}
	return path, nil
}

// Fill gives a volume the data of its source, unless it has data.
func (m *Mounts) Fill(v backend.Volume) error {
	switch {
	case m == nil:
		return nil
	case v.Source.SnapshotID != "":
		return copyData(filepath.Join(m.snapshots, v.Source.SnapshotID), filepath.Join(m.volumes, v.ID))
	case v.Source.VolumeID != "":
		return copyData(filepath.Join(m.volumes, v.Source.VolumeID), filepath.Join(m.volumes, v.ID))
	}
	return nil
}

// Keep gives a snapshot the data of its volume, unless it has data.
func (m *Mounts) Keep(s backend.Snapshot) error {
	if m == nil {
		return nil
	}
	return copyData(filepath.Join(m.volumes, s.VolumeID), filepath.Join(m.snapshots, s.ID))
}

// copyData copies the data in a directory of a volume or a snapshot to another one, at once or not at all. The data of
// a volume that was never mounted is an empty directory.
func copyData(from, to string) error {
	source, done, part := filepath.Join(from, dataDir), filepath.Join(to, dataDir), filepath.Join(to, ".part")
	if _, err := os.Stat(done); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := errors.Join(os.RemoveAll(part), os.Mkdir(part, 0o777))
	if _, never := os.Stat(source); err == nil && !errors.Is(never, fs.ErrNotExist) {
		err = os.CopyFS(part, os.DirFS(source))
	}
	if err != nil {
		return fmt.Errorf("copy data: %w", err)
	}
	return os.Rename(part, done)
}

// Stage mounts a volume at a staging path, unless a mount exists there.
func (m *Mounts) Stage(volume, path string) error {
	if m == nil {
		return nil
	}
	source, err := m.source(volume)
	if err != nil {
		return err
	}
	return m.bind(source, path, false)
}

// Publish mounts a volume at a target path: from its staging path, or from its directory if it is not staged.
func (m *Mounts) Publish(volume, stagedAt, path string, readOnly bool) (err error) {
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

func (m *Mounts) bind(source, path string, readOnly bool) error {
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

// Unmount undoes Stage or Publish, and treats a missing path as not mounted.
func (m *Mounts) Unmount(path string) error {
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
