//go:build unix

package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

const (
	trimmedModule = "k8s.io/apiserver"
	// trimmedFile helps tests of admission plugins. It is the only reason why an API server has the packages of fake
	// clients, 7 % of the compilation. kube-scheduler has them, too.
	trimmedFile = "pkg/admission/plugin/policy/generic/policy_test_context.go"
	// trimmedPrefix begins the name of the module's copy.
	trimmedPrefix = "apiserver-"
)

// trim writes a go.mod into folder that takes [trimmedModule] from a copy without [trimmedFile], and returns its path,
// for -modfile. The copy lies in the cache, so that all binaries of the module share its packages.
func (b build) trim(ctx context.Context, folder string) (modfile string, err error) {
	var out bytes.Buffer
	if err := process.Run(ctx, b.goCommand(&out, "mod", "download", "-json", trimmedModule)); err != nil {
		return "", err
	}
	var module struct{ Version, Dir string }
	if err := json.Unmarshal(out.Bytes(), &module); err != nil {
		return "", fmt.Errorf("read where %s is: %w", trimmedModule, err)
	}
	copied := filepath.Join(b.cache, trimmedPrefix+module.Version)
	now := time.Now()
	if err := os.Chtimes(copied, now, now); errors.Is(err, fs.ErrNotExist) {
		whole := filepath.Join(folder, trimmedPrefix+module.Version)
		err = errors.Join(os.CopyFS(whole, os.DirFS(module.Dir)), os.Remove(filepath.Join(whole, trimmedFile)))
		if err != nil {
			return "", fmt.Errorf("copy %s: %w", trimmedModule, err)
		}
		if err := os.Rename(whole, copied); err != nil {
			return "", err
		}
	}
	modfile = filepath.Join(folder, "trimmed.mod")
	for from, to := range map[string]string{"go.mod": modfile, "go.sum": filepath.Join(folder, "trimmed.sum")} {
		content, err := os.ReadFile(filepath.Join(b.module, from))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return "", err
		}
	}
	return modfile, process.Run(ctx, b.goCommand(nil, "mod", "edit", "-replace="+trimmedModule+"="+copied, modfile))
}
