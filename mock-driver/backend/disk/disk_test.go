package disk_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/disk"
)

// writerVariable makes the test binary write to a store until it is killed.
const writerVariable = "DISK_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		writeForEver(dir)
	}
	os.Exit(m.Run())
}

// writeForEver creates, alters and deletes volumes. It keeps the newest ones, and prints each step after it is done.
func writeForEver(dir string) {
	s := disk.Volumes(dir)
	if _, err := s.Load(); err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		v := backend.Volume{ID: fmt.Sprintf("v-%08d", i), Name: "n", Bytes: 1,
			Parameters: map[string]string{"padding": strings.Repeat("x", 5000)}}
		for v.Bytes = 1; v.Bytes <= 3; v.Bytes++ {
			if err := s.Put(v); err != nil {
				panic(err)
			}
		}
		fmt.Println("put", i)
		if i >= 3 {
			if err := s.Remove(fmt.Sprintf("v-%08d", i-3)); err != nil {
				panic(err)
			}
			fmt.Println("removed", i-3)
		}
	}
}

// After a kill, every finished write is visible, every removed record is gone, and no record is partial.
func TestKilledWriter(t *testing.T) {
	for round := range 20 {
		dir := t.TempDir()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), self)
		c.Env = append(os.Environ(), writerVariable+"="+dir)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		said, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		put, removed := listen(t, said, 5+round*7)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		morePut, moreRemoved := listen(t, said, 1<<30)
		_ = c.Wait() // Killed.
		put, removed = max(put, morePut), max(removed, moreRemoved)
		mustBeWhole(t, dir, put, removed)
	}
}

// listen reads a writer's output, up to the given number of lines or the end, and returns the last numbers put and
// removed.
func listen(t *testing.T, from interface{ Read([]byte) (int, error) }, lines int) (put, removed int) {
	t.Helper()
	removed = -1
	for range lines {
		var what string
		var n int
		if _, err := fmt.Fscan(from, &what, &n); err != nil {
			return put, removed
		}
		if what == "put" {
			put = n
		} else {
			removed = n
		}
	}
	return put, removed
}

func mustBeWhole(t *testing.T, dir string, put, removed int) {
	t.Helper()
	for _, look := range []func() ([]backend.Volume, error){disk.Volumes(dir).Read, disk.Volumes(dir).Load} {
		volumes, err := look()
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		for _, v := range volumes {
			ids[v.ID] = true
			if len(v.Parameters["padding"]) != 5000 {
				t.Errorf("%s is not whole", v.ID)
			}
		}
		for i := removed + 2; i <= put; i++ { // The next removal may just have happened.
			if id := fmt.Sprintf("v-%08d", i); !ids[id] {
				t.Errorf("%s is missing: put up to %d, removed up to %d, have %v", id, put, removed, ids)
			}
		}
		if id := fmt.Sprintf("v-%08d", removed); ids[id] {
			t.Errorf("%s is back", id)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s is left after loading", e.Name())
		}
	}
}

func TestDiskRoundTrip(t *testing.T) {
	dir := t.TempDir()
	created := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	want := []backend.Volume{
		{ID: "a", Name: "one", Bytes: 1, Created: created,
			Attachments: map[string]backend.Attachment{"n1": {ReadOnly: true}}},
		{ID: "b", Name: "two", Bytes: 2, Created: created, Source: backend.Source{SnapshotID: "s"},
			Topology: []map[string]string{{"zone": "a"}}},
	}
	s := disk.Volumes(dir)
	if _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	for _, v := range want {
		if err := s.Put(v); err != nil {
			t.Fatal(err)
		}
	}
	got, err := disk.Volumes(dir).Load()
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
}

func TestInvalidIDsStayInDirectory(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "state")
	s := disk.Volumes(dir)
	if _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	witness := filepath.Join(outside, "witness")
	if err := os.Mkdir(witness, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"../../witness", "..", ".", "", "/", "a/../../../witness", ".lock", "a\x00b",
		strings.Repeat("x", 300)} {
		if err := s.Put(backend.Volume{ID: id}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("put %q: got %v", id, err)
		}
		if err := s.Remove(id); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("remove %q: got %v", id, err)
		}
	}
	entries, err := os.ReadDir(outside)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"state", "witness"}) {
		t.Errorf("outside: got %q", names)
	}
}

func TestDamagedRecordError(t *testing.T) {
	for name, content := range map[string]string{"no JSON": "{", "the record of another": `{"id":"b"}`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			record := filepath.Join(dir, "volumes", "a", "volume.json")
			if err := os.MkdirAll(filepath.Dir(record), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(record, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := disk.Volumes(dir).Load(); err == nil || !strings.Contains(err.Error(), record) {
				t.Errorf("got %v, want an error that names the file", err)
			}
		})
	}
}

func TestLockIsExclusive(t *testing.T) {
	dir := t.TempDir()
	unlock, err := disk.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Lock(dir); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("second lock: got %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	unlock, err = disk.Lock(dir)
	if err != nil {
		t.Fatalf("lock after unlock: %v", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}
