//go:build linux

package nodes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// cgroupRoot is where the system has its cgroups: one tree, or with version 1 a directory for each controller.
	cgroupRoot = "/sys/fs/cgroup"
	// criCgroup is the parent of all containers' cgroups, which containerd names by ID.
	criCgroup = "k8s.io"
	// bundles is where containerd has a directory for each container that runs, by ID, below its state directory.
	bundles = "io.containerd.runtime.v2.task/k8s.io"
	// cgroupPatience is how long the kernel may take to see that the processes of a cgroup have ended.
	cgroupPatience = time.Second
)

// cgroupVersion2 reports whether the system has the one tree of version 2, and nothing else.
func cgroupVersion2() bool {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return err == nil
}

// removeCgroups removes the cgroups of a killed containerd's containers, by its state directory. A cgroup that cannot
// be removed costs nothing but its name.
func removeCgroups(state string) {
	containers, _ := filepath.Glob(filepath.Join(state, bundles, "*"))
	for _, container := range containers {
		id := filepath.Base(container)
		for _, root := range []string{cgroupRoot, filepath.Join(cgroupRoot, "*")} {
			trees, _ := filepath.Glob(filepath.Join(root, criCgroup, id))
			for _, tree := range trees {
				removeCgroup(tree)
			}
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
		for begun := time.Now(); time.Since(begun) < cgroupPatience; time.Sleep(5 * time.Millisecond) {
			if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
	}
}
