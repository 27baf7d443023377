package server

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/mount-utils"
)

// The fake mounter only keeps a list; test/framework/nodes tests real mounts.
func TestMounts(t *testing.T) {
	dir := t.TempDir()
	fake := mount.NewFakeMounter(nil)
	m := &mounts{volumes: filepath.Join(dir, "volumes"), mounter: fake}
	staging, target := filepath.Join(dir, "staging"), filepath.Join(dir, "target")
	for _, path := range []string{filepath.Join(m.volumes, "v"), staging, target} {
		if err := os.MkdirAll(path, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	mounted := func(want ...string) {
		t.Helper()
		list, err := fake.List()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, point := range list {
			got = append(got, filepath.Base(point.Path))
		}
		if !slices.Equal(got, want) {
			t.Errorf("mounted at %q, want %q", got, want)
		}
	}
	if err := m.publish("v", staging, target, false); err == nil {
		t.Error("published what is not staged")
	}
	if err := m.stage("none", staging); err == nil {
		t.Error("staged a volume that is deleted")
	}
	if _, err := os.Stat(filepath.Join(m.volumes, "none")); err == nil {
		t.Error("a deleted volume has a directory again")
	}
	mounted()
	for range 2 { // the kernel would mount again
		if err := m.stage("v", staging); err != nil {
			t.Fatal(err)
		}
		if err := m.publish("v", staging, target, true); err != nil {
			t.Fatal(err)
		}
	}
	mounted("staging", "target")
	if list, _ := fake.List(); !slices.Contains(list[1].Opts, "ro") || slices.Contains(list[0].Opts, "ro") {
		t.Errorf("options %+v, want the target alone read-only", list)
	}
	for range 2 {
		for _, path := range []string{target, staging, filepath.Join(dir, "gone")} {
			if err := m.unmount(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	mounted()
	if err := m.publish("v", "", target, false); err != nil {
		t.Fatal(err)
	}
	mounted("target")
}
