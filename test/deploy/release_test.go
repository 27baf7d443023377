//go:build unix

package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// releaseVersion is none that this project releases.
const releaseVersion = "v99.1.0-rc.1"

// TestRelease makes a release of this checkout for this platform, as "make release" does, and again elsewhere with
// another umask. The tests of tools/release cover refusals.
func TestRelease(t *testing.T) {
	suite.Deep(t, suite.Compiles)
	made := makeRelease(t, "022")
	check := exec.CommandContext(patiently(t), "sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	check.Dir = made
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Run("programs", func(t *testing.T) { programsSayVersion(t, made) })
	t.Run("charts", func(t *testing.T) { chartsInstallVersion(t, made) })
	t.Run("manifests", func(t *testing.T) { manifestsNameVersion(t, made) })
	t.Run("install files", func(t *testing.T) { installFilesApply(t, made) })
	if notes := fromRelease(t, made, "RELEASE_NOTES.md"); notes != "- For this test.\n" {
		t.Errorf("the notes are %q", notes)
	}
	again := makeRelease(t, "077")
	if one, other := fromRelease(t, made, "SHA256SUMS"), fromRelease(t, again, "SHA256SUMS"); one != other {
		t.Errorf("made twice, the checksums differ:\n%s\n%s", one, other)
	}
}

// makeRelease makes a release of this checkout's present files in a separate checkout, and returns its folder.
func makeRelease(t *testing.T, umask string) string {
	t.Helper()
	checkout := committed(t)
	// The folder is named as by a person. Compiling may take longer than anything else here.
	command := fmt.Sprintf("umask %s && exec make --no-print-directory release VERSION=%s IMAGE_PLATFORMS=linux/%s "+
		"PLATFORMS=%s/%s", umask, releaseVersion, runtime.GOARCH, runtime.GOOS, runtime.GOARCH)
	var out, progress bytes.Buffer
	if err := process.Run(t.Context(), process.Command{Name: "make release", Path: "sh", Args: []string{"-c", command},
		Dir: checkout, Stdout: &out, Tee: &progress}); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	made := filepath.Join(checkout, ".build", "release", releaseVersion)
	if got := strings.TrimSpace(out.String()); got != made {
		t.Errorf("make release prints %q, want %q", got, made)
	}
	return made
}

// committed copies the files of this checkout to one where all is in a commit, and the changelog has the release.
func committed(t *testing.T) string {
	t.Helper()
	root := process.RootForTest(t)
	listed, err := exec.CommandContext(patiently(t), "git", "-C", root, "ls-files", "-z", "--cached", "--others",
		"--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	checkout := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		must(t, copyTo(filepath.Join(root, name), filepath.Join(checkout, name)))
	}
	changes := filepath.Join(checkout, "CHANGELOG.md")
	text, err := os.ReadFile(changes)
	must(t, err)
	section := "\n## " + releaseVersion + " - 2026-01-31\n\n- For this test.\n"
	text = bytes.Replace(text, []byte("\n## "), []byte(section+"\n## "), 1)
	must(t, os.WriteFile(changes, text, 0o600))
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}, {"commit", "--quiet", "--message=test"}} {
		command := exec.CommandContext(patiently(t), "git", args...)
		command.Dir = checkout
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t",
			"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t", "GIT_AUTHOR_DATE=1700000000 +0000",
			"GIT_COMMITTER_DATE=1700000000 +0000")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	return checkout
}

// copyTo copies a file with its mode. It omits a missing file that git still lists.
func copyTo(from, to string) error {
	info, err := os.Stat(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode())
}

func fromRelease(t *testing.T, made string, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{made}, path...)...))
	must(t, err)
	return string(text)
}

// programsSayVersion asks all programs of the release: those in the images, and the plugin.
func programsSayVersion(t *testing.T, made string) {
	t.Helper()
	unpacked := t.TempDir()
	for program, says := range saysVersionAs {
		layout := t.TempDir()
		archive := filepath.Join(made, "images", program, program+".tar")
		if out, err := exec.CommandContext(patiently(t), "tar", "-C", layout, "-xf", archive).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var named struct {
			Manifests []struct {
				Digest      string
				Annotations map[string]string
			}
		}
		decode(t, filepath.Join(layout, "index.json"), &named)
		if tag := named.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; tag != releaseVersion {
			t.Errorf("the tag of %s is %q", program, tag)
		}
		var index, image manifest
		decode(t, blob(layout, descriptor{named.Manifests[0].Digest}), &index)
		decode(t, blob(layout, index.Manifests[0]), &image)
		unpack(t, blob(layout, image.Layers[0]), unpacked)
		if runtime.GOOS == "linux" { // the images are for it
			saysVersion(t, filepath.Join(unpacked, program), says+releaseVersion)
		}
		for _, document := range []string{program + ".provenance.json", program + "-linux-" + runtime.GOARCH + ".spdx.json"} {
			if text := fromRelease(t, made, "images", program, document); !strings.Contains(text, releaseVersion) {
				t.Errorf("%s does not name the version", document)
			}
		}
	}
	system := runtime.GOOS + "-" + runtime.GOARCH
	if all := krewPlatforms(t, filepath.Join(made, "krew")); len(all) != 1 || all[system].Bin == "" {
		t.Errorf("the krew manifest has %v", all)
	}
	unpack(t, filepath.Join(made, "krew", "kubectl-reclaim-"+system+".tar.gz"), unpacked)
	saysVersion(t, filepath.Join(unpacked, "kubectl-reclaim"), saysVersionAs["kubectl-reclaim"]+releaseVersion)
}

func saysVersion(t *testing.T, binary, want string) {
	t.Helper()
	out, err := exec.CommandContext(patiently(t), binary, "--version").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("%s --version: %v, %q, want %q", filepath.Base(binary), err, out, want)
	}
}

// chartsInstallVersion renders the packaged charts, as they come.
func chartsInstallVersion(t *testing.T, made string) {
	t.Helper()
	number := strings.TrimPrefix(releaseVersion, "v")
	packaged := func(name string) string { return filepath.Join(made, "charts", name+"-"+number+".tgz") }
	for _, name := range []string{guard, car} {
		out := mustHelm(t, "show", "chart", packaged(name))
		for _, line := range []string{"version: " + number, "appVersion: " + releaseVersion} {
			if !slices.Contains(strings.Split(out, "\n"), line) {
				t.Errorf("chart %s has no %q:\n%s", name, line, out)
			}
		}
	}
	all := documents(t, guard, []byte(mustHelm(t, "template", guard, packaged(guard), "--namespace", guardHome,
		"--set", "releaseOnUninstall.rendered=true")))
	deployment := deploymentOf(t, all)
	const want = guard + ":" + releaseVersion
	if got := deployment.Spec.Template.Spec.Containers[0].Image; got != want {
		t.Errorf("the chart runs %s, want %s", got, want)
	}
	if got := jobOf(t, all).Spec.Template.Spec.Containers[0].Image; got != want {
		t.Errorf("the chart's Job runs %s, want %s", got, want)
	}
	if got := deployment.Labels["app.kubernetes.io/version"]; got != releaseVersion {
		t.Errorf("the Deployment's label has the version %q", got)
	}
	out := mustHelm(t, "install", "mock", packaged(car), "--namespace", carHome, "--set",
		"serviceAccount=mock-csi-controller", "--dry-run=client")
	if !strings.Contains(out, "image: "+car+":"+releaseVersion+"\n") {
		t.Errorf("the container that the chart shows:\n%s", out)
	}
}

// manifestsNameVersion compares the manifests with the checkout's: only images may differ.
func manifestsNameVersion(t *testing.T, made string) {
	t.Helper()
	ours := regexp.MustCompile(`image: (csi-reclaimer|volume-guard|mock-driver):latest`)
	files, err := os.ReadDir(inDeploy(t, "manifests"))
	must(t, err)
	named := 0
	for _, file := range files {
		text := string(read(t, "manifests", file.Name()))
		named += len(ours.FindAllString(text, -1))
		want := ours.ReplaceAllString(text, "image: $1:"+releaseVersion)
		if got := fromRelease(t, made, "manifests", file.Name()); got != want {
			t.Errorf("%s is\n%s", file.Name(), got)
		}
	}
	if named < 5 {
		t.Errorf("the manifests name %d images", named)
	}
}

// installFilesApply sends each object of an install file to the API server, in a dry run in which an unknown field is
// an error. The objects are those of the base in the checkout; only images may differ.
func installFilesApply(t *testing.T, made string) {
	t.Helper()
	makeKustomizeHomes(t)
	for _, program := range []string{guard, car} {
		base, err := kustomized(t, inDeploy(t, "kustomize", program))
		must(t, err)
		file := program + "-install.yaml"
		all := documents(t, file, []byte(fromRelease(t, made, "install", file)))
		if len(all) != len(base) {
			t.Errorf("%s has %d objects, and the base %d", file, len(all), len(base))
		}
		for _, want := range base {
			d := find(t, all, want.GetKind(), want.GetName())
			text := strings.ReplaceAll(string(want.text), `"`+program+`:latest"`, `"`+program+":"+releaseVersion+`"`)
			if got, err := d.MarshalJSON(); err != nil || string(got) != text {
				t.Errorf("%s is\n%s\nwant\n%s\n%v", d, got, text, err)
			}
			if strings.Contains(text, ":latest") {
				t.Errorf("%s names the image latest", d)
			}
		}
		if kind := all[0].GetKind(); program == guard && kind != "Namespace" {
			t.Errorf("%s begins with a %s, whose namespace may be missing", file, kind)
		}
		expectAccepted(t, file, all)
	}
}

// The tags of images and of git begin with v, and chart versions do not.
func TestChartVersionsMatchImageTags(t *testing.T) {
	version := regexp.MustCompile(`(?m)^version: (\S+)\nappVersion: "v(\S+)"$`)
	for _, name := range []string{guard, car} {
		if match := version.FindStringSubmatch(string(read(t, "charts", name, "Chart.yaml"))); match == nil ||
			match[1] != match[2] {
			t.Errorf("%s: the versions are %q", name, match)
		}
	}
}
