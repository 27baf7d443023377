//go:build unix

package program

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFailedStartLeavesNoFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	none := filepath.Join(t.TempDir(), "none")
	if _, err := Start(t.Context(), Options{Name: "csi-reclaimer", Binary: none}); err == nil {
		t.Fatal("a program that is not there was started")
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "csi-reclaimer-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
