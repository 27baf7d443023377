//go:build unix

// Package rundir makes temporary directories that do not outlive their program for long: the next program that makes a
// directory of the kind removes the directories of killed programs.
package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/filelock"
)

// ownerFile is locked by the program that owns the directory. A directory with a free lock was left by a killed
// program.
const ownerFile = "owner.lock"

// Dir is a directory that belongs to this program.
type Dir struct {
	path  string
	owner *filelock.Lock
}

// Make creates a directory in the system's directory for temporary files. Its name begins with prefix.
func Make(prefix string) (*Dir, error) {
	path, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	owner, err := claim(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make directory: %w", err), os.RemoveAll(path))
	}
	return &Dir{path: path, owner: owner}, nil
}

// New makes a directory as Make does, after it has removed the directories of killed programs with this prefix.
func New(prefix string) (*Dir, error) {
	RemoveOrphans(os.TempDir(), prefix, nil)
	return Make(prefix)
}

// claim locks the owner file under a temporary name before it renames it. So a directory with an owner file is never
// unlocked while its owner lives.
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

// Path is the directory's absolute path.
func (d *Dir) Path() string { return d.path }

// Remove removes the directory with all that is in it.
func (d *Dir) Remove() error { return errors.Join(os.RemoveAll(d.path), d.owner.Release()) }

// RemoveOrphans removes the directories under base that have a name with this prefix and belong to no living program.
// It first calls clean, which may be nil, with the path of each. The next call retries failed removals.
func RemoveOrphans(base, prefix string, clean func(path string)) {
	owners, err := filepath.Glob(filepath.Join(base, prefix+"*", ownerFile))
	if err != nil {
		return
	}
	for _, owner := range owners {
		lock, err := filelock.Try(owner)
		if err != nil {
			continue
		}
		if clean != nil {
			clean(filepath.Dir(owner))
		}
		_ = os.RemoveAll(filepath.Dir(owner))
		_ = lock.Release()
	}
}
