package mounts

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/mount-utils"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// The fake mounter only keeps a list; test/framework/nodes tests real mounts.
func TestMounts(t *testing.T) {
	dir := t.TempDir()
	fake := mount.NewFakeMounter(nil)
	m := &Mounts{volumes: filepath.Join(dir, "volumes"), mounter: fake}
	staging, target := filepath.Join(dir, "staging"), filepath.Join(dir, "target")
	for _, path := range []string{filepath.Join(m.volumes, "v"), staging, target} {
		must.OK(t, os.MkdirAll(path, 0o750))
	}
	mounted := func(want ...string) {
		t.Helper()
		list := must.Get(fake.List())(t)
		var got []string
		for _, point := range list {
			got = append(got, filepath.Base(point.Path))
		}
		if !slices.Equal(got, want) {
			t.Errorf("mounted at %q, want %q", got, want)
		}
	}
	if err := m.Publish("v", staging, target, false); err == nil {
		t.Error("published what is not staged")
	}
	if err := m.Stage("none", staging); err == nil {
		t.Error("staged a volume that is deleted")
	}
	if _, err := os.Stat(filepath.Join(m.volumes, "none")); err == nil {
		t.Error("a deleted volume has a directory again")
	}
	mounted()
	for range 2 { // the kernel would mount again
		must.OK(t, m.Stage("v", staging))
		must.OK(t, m.Publish("v", staging, target, true))
	}
	mounted("staging", "target")
	if list, _ := fake.List(); !slices.Contains(list[1].Opts, "ro") || slices.Contains(list[0].Opts, "ro") {
		t.Errorf("options %+v, want the target alone read-only", list)
	}
	for range 2 {
		for _, path := range []string{target, staging, filepath.Join(dir, "gone")} {
			must.OK(t, m.Unmount(path))
		}
	}
	mounted()
	must.OK(t, m.Publish("v", "", target, false))
	mounted("target")
}

func TestSnapshotsAndClonesHaveTheDataOfTheirTime(t *testing.T) {
	dir := t.TempDir()
	m := &Mounts{volumes: filepath.Join(dir, "volumes"), snapshots: filepath.Join(dir, "snapshots")}
	for _, of := range []string{"volumes/v", "volumes/clone", "volumes/restored", "snapshots/s", "snapshots/empty"} {
		must.OK(t, os.MkdirAll(filepath.Join(dir, of), 0o750))
	}
	write := func(text string) {
		t.Helper()
		source, err := m.source("v")
		if err == nil {
			err = os.WriteFile(filepath.Join(source, "file"), []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	do := func(snapshot string) {
		t.Helper()
		must.OK(t, m.Keep(backend.Snapshot{ID: snapshot, VolumeID: "v"}))
	}
	do("empty")
	write("old")
	do("s")
	write("new")
	for _, again := range []string{"empty", "s"} { // sidecars repeat calls
		do(again)
	}
	for id, source := range map[string]backend.Source{"clone": {VolumeID: "v"}, "restored": {SnapshotID: "s"}} {
		must.OK(t, m.Fill(backend.Volume{ID: id, Source: source}))
	}
	for path, want := range map[string]string{"volumes/clone": "new", "volumes/restored": "old", "snapshots/empty": ""} {
		got, _ := os.ReadFile(filepath.Join(dir, path, dataDir, "file"))
		if _, err := os.Stat(filepath.Join(dir, path, dataDir)); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v, want %q", path, got, err, want)
		}
	}
}
