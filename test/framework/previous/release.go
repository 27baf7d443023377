//go:build unix

// Package previous has the release before this checkout, for tests of upgrades and rollbacks: which commit it is
// ([Find]), its files, and its programs. It reads the history of the checkout, and changes nothing there: the files
// are a copy in the cache of the user.
package previous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/filelock"
)

// pinned is a commit with both programs, their manifests and their charts. It stands for the previous release until the
// first release is tagged. Make it empty then: a checkout without that tag lacks its history. See
// docs/how-to/release.md.
const pinned = "63289a09dd3adc75df66c74d0b109e19ca099533"

// Release is a release before the checkout.
type Release struct {
	// Tag is its tag, such as v1.2.3, and empty for the pinned commit.
	Tag string
	// Commit is the full name of its commit.
	Commit string
	root   string
}

// String names the release for people.
func (r Release) String() string {
	if r.Tag == "" {
		return "commit " + r.Commit[:12]
	}
	return r.Tag
}

// Find returns the release before this checkout: the newest tag vX.Y.Z of an ancestor of HEAD that is not HEAD's own
// commit, or the newest pre-release if no release exists. Versions are compared by the rules of semver.org. Without
// such a tag, it is the pinned commit. The error says in one line why neither exists, and how to get one.
func Find(ctx context.Context) (Release, error) {
	root, err := process.ModuleRoot()
	if err != nil {
		return Release{}, fmt.Errorf("find the release before: %w", err)
	}
	r, err := find(ctx, root, pinned)
	if err != nil {
		return Release{}, fmt.Errorf("find the release before: %w", err)
	}
	return r, nil
}

func find(ctx context.Context, root, pinned string) (Release, error) {
	top, err := git(ctx, root, "rev-parse", "--show-toplevel")
	if err != nil {
		return Release{}, fmt.Errorf("%s has no history: %w; use a git clone", root, err)
	}
	if !samePath(top, root) {
		return Release{}, fmt.Errorf("%s has no history, it is a folder in the checkout %s: use a git clone", root, top)
	}
	tags, err := earlierTags(ctx, root)
	if err != nil {
		return Release{}, err
	}
	r := newest(tags)
	r.root = root
	if r.Commit != "" {
		return r, nil
	}
	shallow, err := git(ctx, root, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return Release{}, err
	}
	if shallow == "true" {
		// The tag may be in the missing history, and then the pinned commit would be wrong.
		return Release{}, errors.New("this is a shallow clone: git fetch --unshallow --tags")
	}
	if pinned == "" {
		return Release{}, errors.New("no ancestor of HEAD has a tag vX.Y.Z: git fetch --tags")
	}
	if _, err := git(ctx, root, "merge-base", "--is-ancestor", pinned, "HEAD"); err != nil {
		return Release{}, fmt.Errorf("commit %s is no ancestor of HEAD in this clone: use a clone of the whole history",
			pinned)
	}
	r.Commit = pinned
	return r, nil
}

// earlierTags returns the releases that are ancestors of HEAD, without the tags of HEAD's own commit.
func earlierTags(ctx context.Context, root string) ([]Release, error) {
	head, err := git(ctx, root, "rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return nil, err
	}
	// An annotated tag points to its commit.
	lines, err := git(ctx, root, "for-each-ref", "refs/tags/v*", "--merged=HEAD",
		"--format=%(refname:strip=2) %(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end)")
	if err != nil {
		return nil, err
	}
	var all []Release
	for line := range strings.Lines(lines) {
		tag, commit, _ := strings.Cut(strings.TrimSpace(line), " ")
		// v1 and v1.2 are short forms of releases, and other tags are none.
		if _, err := version.ParseSemantic(tag); err == nil && commit != head {
			all = append(all, Release{Tag: tag, Commit: commit})
		}
	}
	return all, nil
}

// newest returns the newest release, and a pre-release only without any release.
func newest(all []Release) (last Release) {
	for _, r := range all {
		if last.Tag == "" || r.isNewer(last) {
			last = r
		}
	}
	return last
}

func (r Release) isNewer(than Release) bool {
	mine, others := version.MustParseSemantic(r.Tag), version.MustParseSemantic(than.Tag)
	if final := mine.PreRelease() == ""; final != (others.PreRelease() == "") {
		return final
	}
	return others.LessThan(mine)
}

// samePath compares folders whose names may contain links.
func samePath(a, b string) bool {
	first, err := filepath.EvalSymlinks(a)
	if err != nil {
		return false
	}
	second, err := filepath.EvalSymlinks(b)
	return err == nil && first == second
}

// git returns the output of a git command in a folder.
func git(ctx context.Context, folder string, args ...string) (string, error) {
	var out, complaints bytes.Buffer
	err := process.Run(ctx, process.Command{Name: "git " + args[0], Path: "git", Args: append([]string{"-C", folder},
		args...), Stdout: &out, Tee: &complaints})
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], lastLine(err, complaints.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// lastLine is the last that a program has complained of, or its error.
func lastLine(err error, complaints string) error {
	lines := strings.Split(strings.TrimSpace(complaints), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return errors.New(last)
	}
	return err
}

// RequiredVariable, set to "required", has tests fail where the release before is not to be had. Otherwise they are
// skipped.
const RequiredVariable = "UPGRADES"

// ForTest returns the release before this checkout. Without one, it skips the test, or fails it: see
// [RequiredVariable].
func ForTest(t process.TB) Release {
	t.Helper()
	r, err := Find(t.Context())
	switch {
	case err == nil:
	case os.Getenv(RequiredVariable) == "required":
		t.Fatalf("%v", err)
	default:
		t.Skipf("%v", err)
	}
	return r
}

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
