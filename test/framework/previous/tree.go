//go:build unix

package previous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/filelock"
)

const (
	// cacheVariable moves the cache from its default, the folder csi-reclaimer in the user's cache folder.
	cacheVariable = "CSI_RECLAIMER_CACHE"
	// unusedAfter is how long the files of another release are kept.
	unusedAfter = 7 * 24 * time.Hour
	// scratchPrefix begins the name of a folder that is being filled.
	scratchPrefix = "copying-"
)

// Tree returns a folder with the files of the release, a copy in the cache that is made once. Programs that ask at
// once take turns.
func (r Release) Tree(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", fmt.Errorf("copy %s: %w", r, err)
	}
	tree, err := r.copyInto(ctx, cache)
	if err != nil {
		return "", fmt.Errorf("copy %s: %w", r, err)
	}
	return tree, nil
}

// Build compiles a program of the release ("csi-reclaimer") with the flags of go build, and returns the path of the
// binary. See [process.Build].
func (r Release) Build(ctx context.Context, program string, progress io.Writer, goFlags ...string) (string, error) {
	tree, err := r.Tree(ctx)
	if err != nil {
		return "", err
	}
	// The copy is in no repository, unless the cache is.
	return process.BuildIn(ctx, tree, "./cmd/"+program, progress, append(goFlags, "-buildvcs=false")...)
}

func cacheDir() (string, error) {
	base := os.Getenv(cacheVariable)
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find cache folder (%s sets it): %w", cacheVariable, err)
		}
		base = filepath.Join(user, "csi-reclaimer")
	}
	base, err := filepath.Abs(base)
	return filepath.Join(base, "releases"), err
}

func (r Release) copyInto(ctx context.Context, cache string) (tree string, err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := filelock.Acquire(ctx, filepath.Join(cache, "copy.lock"), nil)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	tree = filepath.Join(cache, r.Commit)
	now := time.Now()
	if os.Chtimes(tree, now, now) == nil { // it is there, and in use
		return tree, nil
	}
	removeUnused(cache)
	scratch, err := os.MkdirTemp(cache, scratchPrefix)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	archive, next := filepath.Join(scratch, "tree.tar"), filepath.Join(scratch, "tree")
	if err := os.Mkdir(next, 0o755); err != nil {
		return "", err
	}
	if _, err := git(ctx, r.root, "archive", "--format=tar", "--output="+archive, r.Commit); err != nil {
		return "", err
	}
	if err := process.Run(ctx, process.Command{Path: "tar", Args: []string{"-x", "-f", archive, "-C", next}}); err != nil {
		return "", err
	}
	return tree, os.Rename(next, tree)
}

// removeUnused removes the files of releases that were not used for long, and the scratch folders of killed programs.
// Its caller holds the lock. The next call retries failed removals.
func removeUnused(cache string) {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && entry.IsDir() && (strings.HasPrefix(entry.Name(), scratchPrefix) ||
			time.Since(info.ModTime()) > unusedAfter) {
			_ = os.RemoveAll(filepath.Join(cache, entry.Name()))
		}
	}
}
