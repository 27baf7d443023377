//go:build unix

package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// modulePath is the path of the module that ModuleRoot finds.
const modulePath = "github.com/csi-reclaimer/csi-reclaimer"

// ModuleRoot returns the folder of the project's go.mod, looked for from the working directory
// upwards. Nested modules on the way have other names and are passed by.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find module root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find module root: %w", err)
		}
		for line := range bytes.Lines(gomod) {
			if string(bytes.TrimSpace(line)) == "module "+modulePath {
				return dir, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find module root: %q is not inside module %s", start, modulePath)
		}
	}
}

// RootForTest is ModuleRoot for a test, which fails where the folder is not found.
func RootForTest(t interface {
	Helper()
	Fatal(args ...any)
}) string {
	t.Helper()
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}
