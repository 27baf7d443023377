//go:build unix

package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// pluginVersion is a version that krew accepts.
const pluginVersion = "v1.2.3-rc.1"

// makeKrew runs "make krew" with these variables, and returns its folder.
func makeKrew(t *testing.T, variables ...string) (folder string, err error) {
	t.Helper()
	root := process.RootForTest(t)
	folder = filepath.Join(t.TempDir(), "krew")
	var complaints bytes.Buffer
	err = process.Run(t.Context(), process.Command{ // compiling may take longer than anything else here
		Name: "make krew", Path: "make", Args: append([]string{"krew", "KREW=" + folder}, variables...), Dir: root,
		Tee: &complaints,
	})
	if err != nil {
		err = errors.Join(err, errors.New(complaints.String()))
	}
	return folder, err
}

// krewPlatform is an archive for a system, as a manifest has it.
type krewPlatform struct {
	Selector         struct{ MatchLabels map[string]string }
	URI, SHA256, Bin string
}

// krewPlatforms returns the manifest's platforms by system. It first checks the other requirements of krew's validation
// (internal/index/validation in its source) and of its index for a new plugin.
func krewPlatforms(t *testing.T, folder string) map[string]krewPlatform {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "reclaim.yaml"))
	must(t, err)
	var manifest struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []krewPlatform
		}
	}
	if err := yaml.UnmarshalStrict(text, &manifest); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	spec := manifest.Spec
	if _, err := utilversion.ParseSemantic(spec.Version); err != nil || !strings.HasPrefix(spec.Version, "v") {
		t.Errorf("version %q: %v", spec.Version, err)
	}
	if manifest.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || manifest.Kind != "Plugin" ||
		manifest.Metadata.Name != "reclaim" ||
		spec.Homepage == "" || spec.Description == "" || spec.ShortDescription == "" || len(spec.ShortDescription) > 50 ||
		strings.ContainsAny(spec.ShortDescription, "\r\n") || strings.HasSuffix(spec.ShortDescription, ".") {
		t.Errorf("%+v", manifest)
	}
	all := map[string]krewPlatform{}
	for _, p := range spec.Platforms {
		labels := p.Selector.MatchLabels
		system := labels["os"] + "-" + labels["arch"]
		if _, twice := all[system]; twice || len(labels) != 2 {
			t.Errorf("more than one archive for %v", labels)
		}
		all[system] = p
		archive, bin := "kubectl-reclaim-"+system+".tar.gz", "kubectl-reclaim"
		if labels["os"] == "windows" {
			bin += ".exe"
		}
		if !strings.HasPrefix(p.URI, "https://") || !strings.HasSuffix(p.URI,
			"/"+spec.Version+"/"+archive) || p.Bin != bin {
			t.Errorf("%s: %+v", system, p)
		}
		data, err := os.ReadFile(filepath.Join(folder, archive))
		must(t, err)
		if sum := sha256.Sum256(data); p.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: sum %q, it has %x", system, p.SHA256, sum)
		}
	}
	return all
}

// TestKrewManifestIsValid covers all systems. The archives' contents do not matter here, so nothing is compiled.
func TestKrewManifestIsValid(t *testing.T) {
	root := process.RootForTest(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	folder, err := makeKrew(t, "VERSION="+pluginVersion, "GO=true")
	must(t, err)
	all := krewPlatforms(t, folder)
	made := strings.Fields(regexp.MustCompile(`PLATFORMS \?= (.*)`).FindStringSubmatch(string(makefile))[1])
	if len(made) < 4 || len(all) != len(made) {
		t.Errorf("make krew makes %q, the manifest has %d", made, len(all))
	}
	for _, platform := range made {
		if _, has := all[strings.ReplaceAll(platform, "/", "-")]; !has {
			t.Errorf("the manifest has no %s", platform)
		}
	}
}

// TestKrewArchiveContainsPlugin checks the archive of this system; the others are made in the same way.
func TestKrewArchiveContainsPlugin(t *testing.T) {
	suite.Deep(t, suite.Compiles)
	system := runtime.GOOS + "-" + runtime.GOARCH
	folder, err := makeKrew(t, "VERSION="+pluginVersion, "PLATFORMS="+runtime.GOOS+"/"+runtime.GOARCH)
	must(t, err)
	if all := krewPlatforms(t, folder); len(all) != 1 || all[system].Bin == "" {
		t.Fatalf("the manifest has %v, and not what was made alone", all)
	}
	into := t.TempDir()
	got := unpack(t, filepath.Join(folder, "kubectl-reclaim-"+system+".tar.gz"), into)
	// kubectl completes a plugin by an executable of that name.
	for name, executable := range map[string]bool{"kubectl-reclaim": true, "kubectl_complete-reclaim": true,
		"LICENSE": false} {
		mode, has := got[name]
		if !has || executable != (mode&0o111 != 0) {
			t.Errorf("%s: it is there: %t, with mode %v", name, has, mode)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("the archive has %v, too", got)
	}
	plugin := filepath.Join(into, "kubectl-reclaim")
	built, err := buildinfo.ReadFile(plugin)
	must(t, err)
	settings := map[string]string{}
	for _, s := range built.Settings {
		settings[s.Key] = s.Value
	}
	if settings["GOOS"] != runtime.GOOS || settings["GOARCH"] != runtime.GOARCH || settings["CGO_ENABLED"] != "0" {
		t.Errorf("built for %v", settings)
	}
	for flag, want := range map[string]string{"--help": "kubectl reclaim", "--version": pluginVersion} {
		out, err := use(t, func() (string, error) { return plugin, nil }, nil, flag)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %q", flag, err, out)
		}
	}
}

// TestKrewDocuments checks the man pages and completions; the plugin's own test checks the text of the pages.
func TestKrewDocuments(t *testing.T) {
	suite.Deep(t, suite.Compiles)
	folder, err := makeKrew(t, "VERSION="+pluginVersion, "PLATFORMS=")
	must(t, err)
	into := t.TempDir()
	got := unpack(t, filepath.Join(folder, "kubectl-reclaim-documents.tar.gz"), into)
	for name, want := range map[string]string{"kubectl-reclaim.1": pluginVersion, "kubectl-reclaim-explain.1": "explain",
		"kubectl-reclaim.bash": "__start_kubectl-reclaim", "_kubectl-reclaim": "#compdef kubectl-reclaim",
		"kubectl-reclaim.fish": "complete -c kubectl-reclaim", "kubectl-reclaim.ps1": "Register-ArgumentCompleter"} {
		text, err := os.ReadFile(filepath.Join(into, name))
		if err != nil || !strings.Contains(string(text), want) || got[name] != 0o644 {
			t.Errorf("%s, mode %v: %v, no %q", name, got[name], err, want)
		}
	}
}

// unpack writes the files of an archive into a folder, and returns their modes by their names.
func unpack(t *testing.T, archive, into string) map[string]os.FileMode {
	t.Helper()
	file, err := os.Open(archive)
	must(t, err)
	defer func() { _ = file.Close() }()
	zipped, err := gzip.NewReader(file)
	must(t, err)
	modes := map[string]os.FileMode{}
	for entries := tar.NewReader(zipped); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return modes
		}
		must(t, err)
		if entry.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(entries)
		must(t, err)
		name := filepath.Clean(entry.Name)
		modes[name] = entry.FileInfo().Mode()
		must(t, os.WriteFile(filepath.Join(into, filepath.Base(name)), data, modes[name]))
	}
}

// krew notices an invalid version only at the installation.
func TestKrewRefusesInvalidVersion(t *testing.T) {
	for _, version := range []string{"unknown", "b12a3b5", "1.2.3", "v1.2", "v01.2.3"} {
		folder, err := makeKrew(t, "VERSION="+version, "GO=true")
		if err == nil || !strings.Contains(err.Error(), "krew takes no version like "+version) {
			t.Errorf("%s: %v", version, err)
		}
		if _, err := os.Stat(folder); err == nil {
			t.Errorf("%s: something is made", version)
		}
	}
}
