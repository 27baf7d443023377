//go:build unix

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
)

// folderPattern begins the names of control planes' folders in the system's temporary folder.
const folderPattern = "csi-reclaimer-controlplane-"

// folder is where one control plane has its data, keys and logs.
type folder struct {
	path string
	keep bool
	dir  *rundir.Dir // nil for a folder that is to be kept or was named by the caller
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
	removeOrphans(os.TempDir())
	if keep {
		path, err := os.MkdirTemp("", folderPattern)
		if err != nil {
			return folder{}, fmt.Errorf("make folder: %w", err)
		}
		return folder{path: path, keep: true}, nil
	}
	made, err := rundir.Make(folderPattern)
	if err != nil {
		return folder{}, err
	}
	return folder{path: made.Path(), dir: made}, nil
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

// removeOrphans removes the folders under base that belong to no living program. Its processes ended with it.
func removeOrphans(base string) { rundir.RemoveOrphans(base, folderPattern, nil) }

// close removes the folder, unless it is to be kept.
func (f folder) close() error {
	switch {
	case f.keep:
		return nil
	case f.dir != nil:
		return f.dir.Remove()
	}
	return os.RemoveAll(f.path)
}
