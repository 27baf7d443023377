//go:build unix

package rundir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestNewRemovesDirectoriesOfKilledPrograms(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	makeDir := func(make func(string) (*Dir, error)) *Dir {
		d := must.Get(make("kind-"))(t)
		return d
	}
	killed, living := makeDir(Make), makeDir(Make)
	if err := killed.owner.Release(); err != nil { // as the kernel does
		t.Fatal(err)
	}
	foreign := filepath.Join(os.TempDir(), "kind-of-another")
	must.OK(t, os.Mkdir(foreign, 0o700))
	next := makeDir(New)
	for path, want := range map[string]bool{killed.Path(): false, living.Path(): true, foreign: true, next.Path(): true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
	for _, d := range []*Dir{living, next} {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	}
}
