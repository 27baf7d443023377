// Package disk is a backend store that survives kill -9 at any moment. Each record is a directory named after its id,
// with one JSON file in it:
//
//	volumes/pvc-0a1b…-f00dfeedcafe/volume.json
//
// Thus ls shows a leaked volume. Directories appear and vanish by rename(2), and files are replaced by rename(2), so
// a reader always finds complete records. Nothing is synced: the state outlives the process, not the machine.
package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

// Prefixes of directories during their creation and removal, different from ids, which never begin with a dot.
const (
	making   = ".new-"
	removing = ".gone-"
)

// Store keeps records of one kind, and belongs to one process at a time; see [Lock].
type Store[T any] struct {
	dir  string
	file string
	id   func(T) string
}

// Volumes returns the store of volumes in a state directory.
func Volumes(state string) *Store[backend.Volume] {
	return &Store[backend.Volume]{dir: VolumesDir(state), file: "volume.json",
		id: func(v backend.Volume) string { return v.ID }}
}

// VolumesDir returns the directory with the volumes' directories, each named after its id.
func VolumesDir(state string) string { return filepath.Join(state, "volumes") }

// Snapshots returns the store of snapshots in a state directory.
func Snapshots(state string) *Store[backend.Snapshot] {
	return &Store[backend.Snapshot]{dir: SnapshotsDir(state), file: "snapshot.json",
		id: func(s backend.Snapshot) string { return s.ID }}
}

// SnapshotsDir returns the directory with the snapshots' directories, each named after its id.
func SnapshotsDir(state string) string { return filepath.Join(state, "snapshots") }

// Load implements backend.Store, and also removes incomplete directories of a killed predecessor.
func (s *Store[T]) Load() ([]T, error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), making) || strings.HasPrefix(e.Name(), removing) {
			if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return s.Read()
}

// Read returns all records without changes to the store, so that a test may read while a driver works. Directories
// without a record are skipped.
func (s *Store[T]) Read() ([]T, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []T
	for _, e := range entries {
		if !e.IsDir() || !backend.ValidID(e.Name()) {
			continue
		}
		path := filepath.Join(s.dir, e.Name(), s.file)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var r T
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("decode %q: %w", path, err)
		}
		if got := s.id(r); got != e.Name() {
			return nil, fmt.Errorf("decode %q: holds the record of %q: %w", path, got, backend.ErrInvalid)
		}
		records = append(records, r)
	}
	return records, nil
}

// Put implements backend.Store.
func (s *Store[T]) Put(r T) error {
	id := s.id(r)
	if !backend.ValidID(id) {
		return fmt.Errorf("store %q: %w", id, backend.ErrInvalid)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	dir := filepath.Join(s.dir, id)
	if _, err := os.Lstat(dir); err == nil {
		return replace(filepath.Join(dir, s.file), data)
	}
	fresh := filepath.Join(s.dir, making+id)
	if err := create(fresh, dir, s.file, data); err != nil {
		_ = os.RemoveAll(fresh)
		return err
	}
	return nil
}

func create(fresh, dir, file string, data []byte) error {
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, file), data, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

func replace(path string, data []byte) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(next, data, 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Remove implements backend.Store. The rename deletes the record; the rest only frees space, and Load repeats it
// after a failure.
func (s *Store[T]) Remove(id string) error {
	if !backend.ValidID(id) {
		return fmt.Errorf("remove %q: %w", id, backend.ErrInvalid)
	}
	gone := filepath.Join(s.dir, removing+id)
	if err := os.Rename(filepath.Join(s.dir, id), gone); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	_ = os.RemoveAll(gone)
	return nil
}
