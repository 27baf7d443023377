package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

const (
	testVersion = "v1.2.3"
	// testEpoch is the time of the commit.
	testEpoch = 1700000000
)

// temporary holds files that tests share; TestMain removes it.
var temporary string

func TestMain(m *testing.M) {
	var err error
	if temporary, err = os.MkdirTemp("", "images-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(temporary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// tiny is a program that compiles fast, with one module as its dependency.
var tiny = program{"tiny", "./cmd/tiny", "says hello"}

var sources = map[string]string{
	".gitignore": "/out/\n",
	"go.mod": "module example.com/tiny\n\ngo 1.26\n\n" +
		"require example.com/words v1.4.0\n\nreplace example.com/words => ./words\n",
	"cmd/tiny/main.go": "package main\n\nimport \"example.com/words\"\n\nvar version string\n\n" +
		"func main() { print(words.Hello, version) }\n",
	"words/go.mod":   "module example.com/words\n\ngo 1.26\n",
	"words/words.go": "package words\n\nconst Hello = \"hello \"\n",
}

// writeCheckout creates a repository of the tiny program with one commit that is the same on every machine.
func writeCheckout(folder string) error {
	for name, text := range sources {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	date := fmt.Sprintf("%d +0000", testEpoch)
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."},
		{"-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "commit", "--quiet", "--message=all"}} {
		command := exec.Command("git", append([]string{"-C", folder}, args...)...)
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_DATE="+date,
			"GIT_COMMITTER_DATE="+date)
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args, err, out)
		}
	}
	return nil
}

func checkout(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "checkout")
	ok(t, writeCheckout(folder))
	return folder
}

// testOptions returns the options of "make images" for the tiny program.
func testOptions(root string) options {
	return options{root: root, output: filepath.Join(root, "out"), version: testVersion, goCommand: "go",
		programs:   []program{tiny},
		platforms:  []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}},
		buildFlags: []string{"-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=" + testVersion},
		out:        &bytes.Buffer{}, progress: &bytes.Buffer{}}
}

// built builds once for all tests that only read the result.
var built = sync.OnceValues(func() (options, error) {
	root := filepath.Join(temporary, "checkout")
	if err := writeCheckout(root); err != nil {
		return options{}, err
	}
	o := testOptions(root)
	return o, run(context.Background(), o)
})

// builtOnce returns the options of that build.
func builtOnce(t *testing.T) options {
	t.Helper()
	return must(built())(t)
}

// layoutOf returns the content of the program's image layout: the index of the images, and its artifacts.
func layoutOf(t *testing.T, o options) (index v1.ImageIndex, content []v1.Descriptor) {
	t.Helper()
	all := must(layout.ImageIndexFromPath(filepath.Join(o.output, tiny.name, layoutFolder)))(t)
	manifest := must(all.IndexManifest())(t)
	return must(all.ImageIndex(manifest.Manifests[0].Digest))(t), manifest.Manifests
}

func readFile(t *testing.T, elements ...string) []byte {
	t.Helper()
	return must(os.ReadFile(filepath.Join(elements...)))(t)
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

// wantError fails unless the error contains all words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q has no %q", err, word)
		}
	}
}
