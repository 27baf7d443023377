package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const testVersion = "v1.2.3"

// asProgram lets the test binary run as the program, so that a test can kill it.
const asProgram = "RELEASE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(start())
	}
	os.Exit(m.Run())
}

// makefile creates small files in place of the real build.
const makefile = `images:
	@for p in csi-reclaimer volume-guard mock-driver; do mkdir -p $(IMAGES)/$$p/oci; \
		echo $$p $(VERSION) $(IMAGE_PLATFORMS) $(SOURCE_DATE_EPOCH) >$(IMAGES)/$$p/$$p.tar; \
		echo statement >$(IMAGES)/$$p/$$p.provenance.json; echo layout >$(IMAGES)/$$p/oci/oci-layout; done
	@echo IMAGE DIGEST
krew:
	@mkdir -p $(KREW); echo $(VERSION) $(PLATFORMS) >$(KREW)/reclaim.yaml
`

// helm packages the texts of a chart. The real helm takes minutes to compile, and test/deploy uses it.
const helm = `#!/bin/sh
grep -q ^name: "$2/Chart.yaml" || { echo no chart >&2; exit 1; }
{ echo "$3" "$4" $SOURCE_DATE_EPOCH; cat "$2/Chart.yaml" "$2/values.yaml"; } \
	>"${5#--destination=}/$(basename "$2")-${3#--version=}.tgz"
`

const changelog = "# Changelog\n\n## Unreleased\n\n- later\n\n## v1.2.3 - 2026-01-31\n\n### Added\n\n- now\n\n" +
	"## v1.2.2 - 2026-01-01\n\n- before\n"

// newCheckout creates a repository with one commit: the real folder deploy, and the given texts.
func newCheckout(t *testing.T, texts map[string]string) string {
	t.Helper()
	root := t.TempDir()
	ok(t, os.CopyFS(filepath.Join(root, "deploy"), os.DirFS(filepath.Join("..", "..", "deploy"))))
	for name, text := range map[string]string{"Makefile": makefile, "CHANGELOG.md": changelog, "LICENSE": "license\n"} {
		write(t, filepath.Join(root, name), text)
	}
	for name, text := range texts {
		write(t, filepath.Join(root, name), text)
	}
	gitIn(t, root, "init", "--quiet")
	commit(t, root)
	return root
}

// commit commits all files at a fixed time.
func commit(t *testing.T, root string) {
	t.Helper()
	gitIn(t, root, "add", "--all")
	gitIn(t, root, "commit", "--quiet", "--message=test")
}

func gitIn(t *testing.T, root string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...)
	command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t",
		"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_DATE=1700000000 +0000")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

// ok ends the test at an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns a function that returns the value, and ends the test at an error.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		ok(t, err)
		return value
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	ok(t, os.WriteFile(file, []byte(text), 0o600))
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	return string(must(os.ReadFile(filepath.Join(path...)))(t))
}

// flagsOf returns the flags of a run in a checkout, with an output folder outside of it.
func flagsOf(t *testing.T, root string) (flags []string, output string) {
	t.Helper()
	output = filepath.Join(t.TempDir(), "release")
	fake := filepath.Join(t.TempDir(), "helm")
	write(t, fake, helm)
	ok(t, os.Chmod(fake, 0o700))
	return []string{"--version=" + testVersion, "--root=" + root, "--output=" + output, "--helm=" + fake}, output
}

// gather runs the program, which writes its messages to progress.
func gather(t *testing.T, flags []string, progress io.Writer) error {
	t.Helper()
	o, err := parse(flags, io.Discard, progress)
	if err != nil {
		return err
	}
	return run(t.Context(), o)
}

func mustGather(t *testing.T, flags []string) {
	t.Helper()
	var progress bytes.Buffer
	if err := gather(t, flags, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
}

// filesOf returns the names of all files, including hidden ones.
func filesOf(t *testing.T, folder string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, strings.TrimPrefix(path, folder+string(filepath.Separator)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
