//go:build unix

package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/filelock"
)

const (
	// folderPattern names the folders of control planes in the system's temporary folder.
	folderPattern = "csi-reclaimer-controlplane-"
	// ownerFile is locked by the program that a folder belongs to. A folder whose lock is free was left by
	// a program that was killed.
	ownerFile = "owner.lock"
)

// folder is where one control plane has its data, keys and logs.
type folder struct {
	path  string
	keep  bool
	owner *filelock.Lock // nil for a folder that is to be kept or was named by the caller
}

func (f folder) file(name string) string { return filepath.Join(f.path, name) }

func (f folder) write(name string, content []byte) (string, error) {
	path := f.file(name)
	return path, os.WriteFile(path, content, 0o600)
}

// openFolder makes the folder of a control plane. Folders that killed programs have left are removed first.
func openFolder(dir string, keep bool) (folder, error) {
	if dir != "" {
		return openNamedFolder(dir, keep)
	}
	base := os.TempDir()
	removeOrphans(base)
	path, err := os.MkdirTemp(base, folderPattern)
	if err != nil {
		return folder{}, fmt.Errorf("make folder: %w", err)
	}
	f := folder{path: path, keep: keep}
	if keep {
		return f, nil
	}
	if f.owner, err = claim(path); err != nil {
		return folder{}, errors.Join(fmt.Errorf("make folder: %w", err), os.RemoveAll(path))
	}
	return f, nil
}

func openNamedFolder(dir string, keep bool) (folder, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return folder{}, fmt.Errorf("make folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return folder{}, fmt.Errorf("make folder: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return folder{}, fmt.Errorf("make folder: %w", err)
	}
	if len(entries) > 0 {
		return folder{}, fmt.Errorf("make folder: %q is not empty", path)
	}
	return folder{path: path, keep: keep}, nil
}

// claim locks the owner file under a name that nobody looks for and only then gives it its own:
// a folder with an owner file is never seen unlocked while its owner lives.
func claim(path string) (*filelock.Lock, error) {
	unseen := filepath.Join(path, ownerFile+".new")
	lock, err := filelock.Try(unseen)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(unseen, filepath.Join(path, ownerFile)); err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return lock, nil
}

// removeOrphans removes the folders under base that belong to no living program. Its processes ended with it.
// A folder that cannot be removed is no reason not to start.
func removeOrphans(base string) {
	owners, err := filepath.Glob(filepath.Join(base, folderPattern+"*", ownerFile))
	if err != nil {
		return
	}
	for _, owner := range owners {
		lock, err := filelock.Try(owner)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(filepath.Dir(owner))
		_ = lock.Release()
	}
}

// close removes the folder, unless it is to be kept.
func (f folder) close() error {
	if f.keep {
		return nil
	}
	err := os.RemoveAll(f.path)
	if f.owner != nil {
		err = errors.Join(err, f.owner.Release())
	}
	return err
}
