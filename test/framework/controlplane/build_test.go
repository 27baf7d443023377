//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/filelock"
)

// notes is progress that may be read while it is written.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// tinyBuild is the build of a module that takes a second instead of minutes: it prints the version it was linked with.
func tinyBuild(t *testing.T) (build, *notes) {
	t.Helper()
	module, progress := t.TempDir(), &notes{}
	for name, content := range map[string]string{
		"go.mod": "module example.test/tiny\ngo 1.22\nrequire (\n\tk8s.io/kubernetes v1.99.7\n\tk8s.io/component-base " +
			"v0.99.7\n)\n" +
			"replace k8s.io/kubernetes => ./kubernetes\nreplace k8s.io/component-base => ./base\n",
		"main.go": "package main\nimport \"k8s.io/component-base/version\"\nfunc main() { " +
			"print(version.Text()) }\n",
		"kubernetes/go.mod": "module k8s.io/kubernetes\n",
		"base/go.mod":       "module k8s.io/component-base\n",
		"base/version/version.go": "package version\nvar gitVersion, gitMajor, gitMinor string\nfunc Text() string { " +
			"return gitVersion + \" \" + gitMajor + \" \" + gitMinor }\n",
	} {
		path := filepath.Join(module, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.OK(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return build{what: "Kubernetes", name: "tiny", pkg: ".", module: module, cache: filepath.Join(t.TempDir(), "cache"),
		progress: progress}, progress
}

// cached returns the names in the cache, without the lock.
func (b build) cached(t *testing.T) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(b.cache))(t)
	var names []string
	for _, entry := range entries {
		if entry.Name() != "build.lock" {
			names = append(names, entry.Name())
		}
	}
	return names
}

func TestConcurrentBuildsCompileOnce(t *testing.T) {
	t.Parallel()
	b, progress := tinyBuild(t)
	const waits = "another program is building"
	must.OK(t, os.MkdirAll(b.cache, 0o700))
	turn := must.Get(filelock.Try(filepath.Join(b.cache, "build.lock")))(t)
	var group errgroup.Group
	for range 3 {
		group.Go(func() error {
			binary, err := b.run(t.Context())
			if err != nil {
				return err
			}
			var log strings.Builder
			if err := process.Run(t.Context(), process.Command{Path: binary, Tee: &log}); err != nil {
				return err
			}
			if log.String() != "v1.99.7 1 99" {
				return fmt.Errorf("linked with version %q", log.String())
			}
			return nil
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	for poll := time.NewTicker(time.Millisecond); strings.Count(progress.String(), waits) < 3; {
		select {
		case err := <-ended:
			t.Fatalf("a build has not waited for its turn: %v\n%s", err, progress)
		case <-poll.C:
		}
	}
	must.OK(t, turn.Release())
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s", err, progress)
	}
	if said := progress.String(); strings.Count(said, "compiling Kubernetes v1.99.7") != 1 ||
		strings.Count(said, "built in") != 1 {
		t.Errorf("progress %q, want one build", said)
	}
	if names := b.cached(t); len(names) != 1 {
		t.Errorf("cache has %q, want the binary", names)
	}
}

func TestBuildTracksSourcesAndRemovesStaleBinaries(t *testing.T) {
	t.Parallel()
	b, _ := tinyBuild(t)
	first := must.Get(b.run(t.Context()))(t)
	old, recent, half := filepath.Join(b.cache, "tiny-0"), filepath.Join(b.cache, "tiny-1"), filepath.Join(b.cache,
		scratchPrefix+"killed")
	for _, path := range []string{old, recent} {
		must.OK(t, os.WriteFile(path, nil, 0o700))
	}
	longAgo := time.Now().Add(-2 * unusedAfter)
	must.OK(t, errors.Join(os.Chtimes(old, longAgo, longAgo), os.Mkdir(half, 0o700)))
	source := filepath.Join(b.module, "more.go")
	must.OK(t, os.WriteFile(source, []byte("package main\n"), 0o600))
	second := must.Get(b.run(t.Context()))(t)
	if first == second {
		t.Error("other sources, same binary")
	}
	for path, want := range map[string]bool{first: true, second: true, recent: true, old: false, half: false} {
		if exists(path) != want {
			t.Errorf("%s exists: %t, want %t", filepath.Base(path), !want, want)
		}
	}
}

func TestFailedBuildQuotesCompilerAndCleansUp(t *testing.T) {
	t.Parallel()
	b, _ := tinyBuild(t)
	if err := os.WriteFile(filepath.Join(b.module, "main.go"), []byte("package main\nfunc main() { missing() }\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("error %v, want the compiler's words", err)
	}
	if names := b.cached(t); len(names) > 0 {
		t.Errorf("cache has %q, want nothing", names)
	}
}

// TestInterruptedBuildCleansUp is not parallel, because it changes the environment of the process.
func TestInterruptedBuildCleansUp(t *testing.T) {
	b, progress := tinyBuild(t)
	// A compiler that never ends, save when asked for its version.
	compiling := filepath.Join(t.TempDir(), "compiling")
	never := filepath.Join(t.TempDir(), "never")
	script := "#!/bin/sh\ncase \"$*\" in *-V=full*) exec \"$@\";; esac\ntouch " + compiling + "\nexec sleep 3600\n"
	must.OK(t, os.WriteFile(never, []byte(script), 0o700))
	t.Setenv("GOFLAGS", "-toolexec="+never)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := b.run(ctx)
		done <- err
	}()
	eventually(t, "the compiler runs", func(context.Context) error {
		if !exists(compiling) {
			return fmt.Errorf("%w: %s", errNotYet, progress)
		}
		return nil
	})
	if names := b.cached(t); len(names) != 1 || !strings.HasPrefix(names[0], scratchPrefix) {
		t.Errorf("cache during the build has %q, want its scratch folder", names)
	}
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want Canceled", err)
		}
	case <-time.After(testTimeout):
		t.Fatal("the build continues")
	}
	if names := b.cached(t); len(names) > 0 {
		t.Errorf("cache has %q, want nothing", names)
	}
}

func TestBuildMakesTests(t *testing.T) {
	t.Parallel()
	b, progress := tinyBuild(t)
	b.test = "example.test/tiny"
	tests := "package main\nimport (\n\t\"testing\"\n\t\"k8s.io/component-base/version\"\n)\n" +
		"func TestMain(*testing.M) { print(\"tests of \", version.Text()) }\n"
	must.OK(t, os.WriteFile(filepath.Join(b.module, "main_test.go"), []byte(tests), 0o600))
	binary, err := b.run(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, progress)
	}
	var log strings.Builder
	must.OK(t, process.Run(t.Context(), process.Command{Path: binary, Tee: &log}))
	if log.String() != "tests of v1.99.7 1 99" {
		t.Errorf("the binary prints %q", log.String())
	}
}
