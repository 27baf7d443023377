//go:build unix

package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestModuleDirOfRequiredModule(t *testing.T) {
	dir, err := ModuleDir(t.Context(), "github.com/container-storage-interface/spec")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "csi.proto")); err != nil {
		t.Error(err)
	}
}

func TestModuleDirOfUnknownModule(t *testing.T) {
	const stranger = "example.test/stranger"
	if dir, err := ModuleDir(t.Context(), stranger); err == nil || !strings.Contains(err.Error(), stranger) {
		t.Errorf("got %q, %v", dir, err)
	}
}
