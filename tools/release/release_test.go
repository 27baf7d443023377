package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The content of the parts is tested with the real Makefile, in test/deploy.
func TestRelease(t *testing.T) {
	flags, output := flagsOf(t, newCheckout(t, nil))
	var progress bytes.Buffer
	flags = append(flags, "--platforms=linux/a", "--plugin-platforms=linux/b darwin/c")
	ok(t, gather(t, flags, &progress))
	made := filepath.Join(output, testVersion)
	names := filesOf(t, made)
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "manifests/") || strings.HasPrefix(name, "kustomize/")
	})
	want := []string{"LICENSE", "RELEASE_NOTES.md", "SHA256SUMS", "charts/csi-reclaimer-1.2.3.tgz",
		"charts/volume-guard-1.2.3.tgz"}
	for _, p := range []string{"csi-reclaimer", "mock-driver", "volume-guard"} {
		want = append(want, "images/"+p+"/"+p+".provenance.json", "images/"+p+"/"+p+".tar")
	}
	want = append(want, "images/digests.txt", "install/csi-reclaimer-install.yaml", "install/volume-guard-install.yaml",
		"krew/reclaim.yaml", "monitoring/csi-reclaimer.json",
		"monitoring/csi-reclaimer.rules.yaml")
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("made %q, want %q", names, want)
	}
	for file, text := range map[string]string{
		"RELEASE_NOTES.md":                     "### Added\n\n- now\n",
		"images/digests.txt":                   "IMAGE DIGEST\n",
		"images/volume-guard/volume-guard.tar": "volume-guard v1.2.3 linux/a 1700000000\n",
		"krew/reclaim.yaml":                    "v1.2.3 linux/b darwin/c\n",
	} {
		if got := read(t, made, file); got != text {
			t.Errorf("%s is %q, want %q", file, got, text)
		}
	}
	for _, step := range []string{"v1.2.3, 1 of 7: images for linux/a", "7 of 7: checksums"} {
		if !strings.Contains(progress.String(), step) {
			t.Errorf("no progress %q in\n%s", step, progress.String())
		}
	}
	verify(t, made)
	write(t, filepath.Join(made, "krew", "reclaim.yaml"), "other")
	if err := checksums(t, made); err == nil {
		t.Error("the checksums do not notice a file that was changed")
	}
}

// verify checks that the checksums cover all other files.
func verify(t *testing.T, made string) {
	t.Helper()
	if err := checksums(t, made); err != nil {
		t.Error(err)
	}
	if lines, files := strings.Count(read(t, made, sumsFile), "\n"), len(filesOf(t, made)); lines != files-1 {
		t.Errorf("%d checksums of %d files", lines, files)
	}
}

// checksums runs the command that an operator would run.
func checksums(t *testing.T, made string) error {
	t.Helper()
	command := exec.CommandContext(t.Context(), "sha256sum", "--check", "--quiet", sumsFile)
	command.Dir = made
	return command.Run()
}

func TestImageVersions(t *testing.T) {
	flags, output := flagsOf(t, newCheckout(t, nil))
	mustGather(t, flags)
	for file, wants := range map[string][]string{
		"example.yaml":              {"image: csi-reclaimer:v1.2.3 #", "image: mock-driver:v1.2.3 #"},
		"volume-guard.yaml":         {"image: volume-guard:v1.2.3 #"},
		"example-node-fencing.yaml": {"image: fence-agent:latest"}, // not an image of this project
	} {
		for _, want := range wants {
			if text := read(t, output, testVersion, "manifests", file); !strings.Contains(text, want) {
				t.Errorf("%s has no %q", file, want)
			}
		}
	}
	installed := read(t, output, testVersion, "install", "volume-guard-install.yaml")
	if !strings.Contains(installed, "image: volume-guard:v1.2.3\n") || strings.Contains(installed, ":latest") {
		t.Errorf("the install file is\n%s", installed)
	}
	for name, values := range map[string]string{"csi-reclaimer": "image: csi-reclaimer:v1.2.3\n",
		"volume-guard": "repository: volume-guard\n"} {
		c := read(t, output, testVersion, "charts", name+"-1.2.3.tgz")
		if !strings.Contains(c, "--version=1.2.3 --app-version=v1.2.3 1700000000") || !strings.Contains(c, values) ||
			strings.Contains(c, ":latest") {
			t.Errorf("%s was packaged as\n%s", name, c)
		}
	}
}

// The second checkout has other times and modes, and each release is made twice.
func TestReproducibleChecksums(t *testing.T) {
	var all []string
	for range 2 {
		root := newCheckout(t, nil)
		flags, output := flagsOf(t, root)
		mustGather(t, flags)
		all = append(all, read(t, output, testVersion, sumsFile))
		now := time.Now().Add(time.Hour)
		ok(t, os.Chtimes(filepath.Join(root, "deploy", "charts", "volume-guard", "values.yaml"), now, now))
		mustGather(t, flags) // replaces the earlier release
		all = append(all, read(t, output, testVersion, sumsFile))
		if names, err := os.ReadDir(output); err != nil || len(names) != 1 {
			t.Errorf("beside the release: %v, %v", names, err)
		}
	}
	if slices.Sort(all); all[0] != all[len(all)-1] {
		t.Errorf("different checksums:\n%s\n%s", all[0], all[len(all)-1])
	}
}

func TestRefusedReleases(t *testing.T) {
	for name, test := range map[string]struct {
		texts  map[string]string
		after  func(t *testing.T, root, output string)
		flags  []string
		wanted []string
	}{
		"without a section": {texts: map[string]string{"CHANGELOG.md": "## Unreleased\n\n- a\n"},
			wanted: []string{"no section v1.2.3", "TRIAL=1", `rename "## Unreleased" to "## v1.2.3 - YYYY-MM-DD"`}},
		"with changes": {after: func(t *testing.T, root, _ string) { write(t, filepath.Join(root, "LICENSE"), "mine") },
			wanted: []string{"uncommitted changes", " M LICENSE", "TRIAL=1"}},
		"with new files": {after: func(t *testing.T, root, _ string) { write(t, filepath.Join(root, "new"), "mine") },
			wanted: []string{"?? new"}},
		"with the tag elsewhere": {after: func(t *testing.T, root, _ string) {
			gitIn(t, root, "tag", "--annotate", "--message=tag", testVersion)
			write(t, filepath.Join(root, "LICENSE"), "mine")
			commit(t, root)
		}, wanted: []string{"tag v1.2.3 is commit", "choose another version"}},
		"outside of a checkout": {flags: []string{"--root=/"}, wanted: []string{"run this in a checkout"}},
		"over something else": {after: func(t *testing.T, _, output string) {
			ok(t, os.MkdirAll(filepath.Join(output, testVersion), 0o700))
		}, wanted: []string{"is in the way", "remove it"}},
		"with a failing build": {texts: map[string]string{"Makefile": makefile + "\t@echo krew is broken >&2; false\n"},
			wanted: []string{"kubectl plugin", "make krew"}},
		"changed meanwhile": {texts: map[string]string{"Makefile": makefile + "\t@echo more >>LICENSE\n"},
			wanted: []string{"changed while the release was made"}},
		"with an image in another form": {texts: map[string]string{
			"deploy/manifests/odd.yaml": "images: [volume-guard:latest]\n"}, wanted: []string{"odd.yaml", "not filled in"}},
		"with a kustomize base that does not build": {texts: map[string]string{
			"deploy/kustomize/volume-guard/bindings.yaml": "kind: none\n"}, wanted: []string{"kustomize base volume-guard"}},
		"with a chart that is none": {texts: map[string]string{"deploy/charts/volume-guard/Chart.yaml": "invalid\n"},
			wanted: []string{"chart volume-guard", "no chart"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := newCheckout(t, test.texts)
			flags, output := flagsOf(t, root)
			if test.after != nil {
				test.after(t, root, output)
			}
			err := gather(t, append(flags, test.flags...), io.Discard)
			for _, want := range test.wanted {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			if _, err := os.Stat(output); err == nil {
				if names := filesOf(t, output); len(names) > 0 {
					t.Errorf("left behind: %q", names)
				}
			}
		})
	}
}

// TestTrial changes a file, and the changelog has no section of the version.
func TestTrial(t *testing.T) {
	root := newCheckout(t, map[string]string{"CHANGELOG.md": "## Unreleased\n\n- later\n\n## v1.2.2 - 2026-01-01\n"})
	write(t, filepath.Join(root, "LICENSE"), "mine")
	flags, output := flagsOf(t, root)
	var progress bytes.Buffer
	ok(t, gather(t, append(flags, "--trial"), &progress))
	if got := read(t, output, testVersion, "LICENSE"); got != "mine" || !strings.Contains(progress.String(),
		"do not publish it") {
		t.Errorf("took %q, and reported %q", got, progress.String())
	}
	const want = "This is a trial of v1.2.3, and no release.\n\n- later\n"
	if got := read(t, output, testVersion, "RELEASE_NOTES.md"); got != want {
		t.Errorf("the notes are %q, want %q", got, want)
	}
}

func TestExistingTagOfCommit(t *testing.T) {
	root := newCheckout(t, nil)
	gitIn(t, root, "tag", "--annotate", "--message=tag", testVersion)
	gitIn(t, root, "tag", testVersion+"-rc.1")
	flags, _ := flagsOf(t, root)
	mustGather(t, flags)
}

// Only a complete release replaces it.
func TestFailedRunKeepsEarlierRelease(t *testing.T) {
	root := newCheckout(t, nil)
	flags, output := flagsOf(t, root)
	mustGather(t, flags)
	before := read(t, output, testVersion, sumsFile)
	write(t, filepath.Join(root, "Makefile"), makefile+"\t@false\n")
	commit(t, root)
	if err := gather(t, flags, io.Discard); err == nil {
		t.Fatal("a build that fails is no error")
	}
	verify(t, filepath.Join(output, testVersion))
	if after := read(t, output, testVersion, sumsFile); after != before {
		t.Error("the earlier release was changed")
	}
}

// hanging returns a Makefile that writes to the pipe during its build and then hangs.
func hanging(t *testing.T) (makefileText, pipe string) {
	t.Helper()
	pipe = filepath.Join(t.TempDir(), "pipe")
	ok(t, syscall.Mkfifo(pipe, 0o600))
	return makefile + "\t@echo here >" + pipe + "; exec sleep 600\n", pipe
}

// awaitLine waits until the build writes to the pipe.
func awaitLine(t *testing.T, pipe string) {
	t.Helper()
	file, err := os.OpenFile(pipe, os.O_RDWR|syscall.O_NONBLOCK, 0) // for both directions, so that the open does not block
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	ok(t, file.SetReadDeadline(time.Now().Add(4*time.Minute)))
	if _, err := file.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the build did not begin: %v", err)
	}
}

// A killed run may leave a hidden folder.
func TestInterruptedRun(t *testing.T) {
	for signal, hidden := range map[syscall.Signal]bool{
		syscall.SIGINT: false, syscall.SIGTERM: false, syscall.SIGKILL: true,
	} {
		t.Run(signal.String(), func(t *testing.T) {
			text, pipe := hanging(t)
			flags, output := flagsOf(t, newCheckout(t, map[string]string{"Makefile": text}))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			command := exec.CommandContext(ctx, os.Args[0], flags...)
			command.Env = append(os.Environ(), asProgram+"=1")
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			// A terminal sends its signals to the whole process group.
			command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
			ok(t, command.Start())
			t.Cleanup(func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) })
			awaitLine(t, pipe)
			ok(t, syscall.Kill(-command.Process.Pid, signal))
			if err := command.Wait(); err == nil {
				t.Error("it ended as if all were made")
			}
			entries := must(os.ReadDir(output))(t)
			for _, entry := range entries {
				if !hidden || !strings.HasPrefix(entry.Name(), ".making-") {
					t.Errorf("left behind: %s", entry.Name())
				}
			}
		})
	}
}

// make passes on the variables of its command line, which would take precedence.
func TestInheritedMakeVariables(t *testing.T) {
	t.Setenv("MAKEFLAGS", " -- VERSION=other PLATFORMS=other")
	flags, output := flagsOf(t, newCheckout(t, nil))
	mustGather(t, append(flags, "--plugin-platforms=linux/b"))
	if got := read(t, output, testVersion, "krew", "reclaim.yaml"); got != "v1.2.3 linux/b\n" {
		t.Errorf("made %q", got)
	}
}
