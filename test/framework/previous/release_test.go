//go:build unix

package previous

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// repository is one of a test's own.
type repository struct {
	t    *testing.T
	root string
}

func newRepository(t *testing.T) repository {
	t.Helper()
	for _, variable := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"} {
		t.Setenv(variable, os.DevNull)
	}
	r := repository{t, t.TempDir()}
	r.git("init", "--quiet", "--initial-branch=main")
	return r
}

func (r repository) git(args ...string) string {
	r.t.Helper()
	out, err := git(r.t.Context(), r.root, append([]string{"-c", "user.name=Test", "-c", "user.email=test@example.com"},
		args...)...)
	if err != nil {
		r.t.Fatalf("git %q: %v", args, err)
	}
	return out
}

// commit makes a commit, with these tags, and returns its name.
func (r repository) commit(tags ...string) string {
	r.t.Helper()
	r.git("commit", "--quiet", "--allow-empty", "--message=change")
	for _, tag := range tags {
		r.git("tag", tag)
	}
	return r.git("rev-parse", "HEAD")
}

func (r repository) expect(pinned, tag, commit string) {
	r.t.Helper()
	got, err := find(r.t.Context(), r.root, pinned)
	if err != nil || got.Tag != tag || got.Commit != commit {
		r.t.Errorf("it is %q, commit %s, and error %v; want %q, commit %s", got.Tag, got.Commit, err, tag, commit)
	}
}

func (r repository) expectNone(pinned, why string) {
	r.t.Helper()
	got, err := find(r.t.Context(), r.root, pinned)
	if err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "\n") {
		r.t.Errorf("it is %q, and error %v; want one line with %q", got, err, why)
	}
}

func TestPreviousReleaseIsNewestAncestorTag(t *testing.T) {
	r := newRepository(t)
	pinned := r.commit()
	r.expect(pinned, "", pinned)
	first := r.commit("v0.9.0", "latest", "v0", "v0.9", "view")
	r.expect(pinned, "", pinned) // the tags are of HEAD itself
	r.commit()
	r.expect(pinned, "v0.9.0", first)
	second := r.commit("v0.10.0")
	r.expect(pinned, "v0.9.0", first)
	r.commit("v0.2.0", "v1.0.0-rc.1") // a fix of an older line, and a pre-release
	r.git("switch", "--quiet", "--create=other")
	r.commit("v2.0.0")
	r.git("switch", "--quiet", "main")
	r.commit()
	r.expect(pinned, "v0.10.0", second)
	r.expect("", "v0.10.0", second)
}

func TestPreviousReleaseMayBePreRelease(t *testing.T) {
	r := newRepository(t)
	pinned := r.commit("v0.1.0-rc.2")
	last := r.commit("v0.1.0-rc.10")
	r.commit("v0.1.0")
	r.expect(pinned, "v0.1.0-rc.10", last)
}

func TestAnnotatedTagResolvesToCommit(t *testing.T) {
	r := newRepository(t)
	first := r.commit()
	r.git("tag", "--annotate", "--message=first", "v0.1.0")
	r.commit()
	r.git("tag", "--annotate", "--message=second", "v0.2.0")
	r.expect("", "v0.1.0", first)
}

func TestNoPreviousReleaseWithoutHistory(t *testing.T) {
	r := newRepository(t)
	pinned := r.commit("v0.1.0")
	r.commit()
	r.commit()
	clone := repository{t, filepath.Join(t.TempDir(), "clone")}
	r.git("clone", "--quiet", "--depth=2", "file://"+r.root, clone.root)
	clone.expectNone(pinned, "git fetch --unshallow --tags")
	clone.git("fetch", "--quiet", "--unshallow", "--tags")
	clone.expect("", "v0.1.0", pinned)

	r.git("tag", "--delete", "v0.1.0")
	r.expectNone("", "git fetch --tags")
	r.git("switch", "--quiet", "--orphan=another")
	r.git("commit", "--quiet", "--allow-empty", "--message=another beginning")
	r.expectNone(pinned, "use a clone of the whole history")

	archive := repository{t, filepath.Join(r.root, "archive")}
	must.OK(t, os.Mkdir(archive.root, 0o755))
	archive.expectNone(pinned, "use a git clone") // unpacked in another checkout
	repository{t, t.TempDir()}.expectNone(pinned, "use a git clone")
}

// TestPreviousReleaseOfThisCheckout finds the release that the upgrade tests use.
func TestPreviousReleaseOfThisCheckout(t *testing.T) {
	r := ForTest(t)
	if pinned != "" && r.Tag != "" {
		t.Errorf("%s is the release before, and no commit needs to be pinned: make the constant empty", r)
	}
}

func TestTreeIsCopiedOnce(t *testing.T) {
	r := newRepository(t)
	must.OK(t, os.WriteFile(filepath.Join(r.root, "file"), []byte("old"), 0o600))
	r.git("add", "file")
	release := Release{Commit: r.commit(), root: r.root}
	must.OK(t, os.WriteFile(filepath.Join(r.root, "file"), []byte("changed"), 0o600))
	cache := t.TempDir()
	t.Setenv(cacheVariable, cache)
	unused, recent := filepath.Join(cache, "releases", "unused"), filepath.Join(cache, "releases", "recent")
	killed := filepath.Join(cache, "releases", scratchPrefix+"1")
	for _, folder := range []string{unused, recent, killed} {
		must.OK(t, os.MkdirAll(folder, 0o755))
	}
	long := time.Now().Add(-2 * unusedAfter)
	must.OK(t, os.Chtimes(unused, long, long))
	trees := make(chan string, 4)
	for range cap(trees) {
		go func() {
			tree, err := release.Tree(t.Context())
			if err != nil {
				t.Error(err)
			}
			trees <- tree
		}()
	}
	tree := <-trees
	for range cap(trees) - 1 {
		if other := <-trees; other != tree {
			t.Errorf("copies in %s and %s", tree, other)
		}
	}
	if text, err := os.ReadFile(filepath.Join(tree, "file")); err != nil || string(text) != "old" {
		t.Errorf("the copy has %q, %v", text, err)
	}
	for folder, kept := range map[string]bool{unused: false, killed: false, recent: true} {
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) == kept {
			t.Errorf("%s: %v, want it kept: %v", folder, err, kept)
		}
	}
	// A tree that was not used for long is kept if it is the wanted one.
	must.OK(t, os.Chtimes(tree, long, long))
	if again, err := release.Tree(t.Context()); err != nil || again != tree {
		t.Errorf("then it is %s, %v", again, err)
	}
	if info, err := os.Stat(tree); err != nil || time.Since(info.ModTime()) > unusedAfter {
		t.Errorf("its use is not noted: %v", err)
	}
	if out := r.git("status", "--porcelain"); !strings.Contains(out, "M file") || strings.Contains(out, "?") {
		t.Errorf("the checkout was touched: %q", out)
	}
}
