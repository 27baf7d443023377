//go:build linux

package nodes

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// cgroupRoot is where the system has its cgroups: one tree, or with version 1 a directory for each controller.
const cgroupRoot = "/sys/fs/cgroup"

// cgroupVersion2 reports whether the system has the one tree of version 2, and nothing else.
func cgroupVersion2() bool {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return err == nil
}

// removeCgroups removes the cgroups below name, whose processes have ended. The kernel may take a moment to notice
// that; what is left after that costs nothing but its name.
func removeCgroups(name string) {
	for _, pattern := range []string{filepath.Join(cgroupRoot, name), filepath.Join(cgroupRoot, "*", name)} {
		trees, _ := filepath.Glob(pattern)
		for _, tree := range trees {
			removeCgroup(tree)
		}
	}
}

func removeCgroup(tree string) {
	var dirs []string
	_ = filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs) // children first
	for _, dir := range dirs {
		for range 20 {
			if err := os.Remove(dir); err == nil || os.IsNotExist(err) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
