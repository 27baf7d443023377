//go:build unix

package deploy

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// descriptor and manifest have the fields of an image layout's index and manifests that are read here.
type (
	descriptor struct{ Digest string }
	manifest   struct {
		Manifests, Layers []descriptor
		Config            descriptor
	}
)

// blob returns the file of a descriptor in a layout.
func blob(layout string, d descriptor) string {
	return filepath.Join(layout, "blobs", strings.Replace(d.Digest, ":", string(filepath.Separator), 1))
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	must(t, err)
}

// TestImagesContainStaticPrograms builds the images of this machine's architecture as "make images" does. Then it
// starts each program as in its image: alone in its file system, as the image's user.
func TestImagesContainStaticPrograms(t *testing.T) {
	suite.Deep(t, suite.Compiles)
	root := process.RootForTest(t)
	made, unpacked := t.TempDir(), t.TempDir()
	var complaints bytes.Buffer
	if err := process.Run(t.Context(), process.Command{ // compiling may take longer than anything else here
		Name: "make images", Path: "make", Args: []string{"images", "IMAGES=" + made, "VERSION=" + version,
			"IMAGE_PLATFORMS=linux/" + runtime.GOARCH, "ONLY=", "PUSH=", "REVISION=test", "SOURCE_DATE_EPOCH=1700000000"},
		Dir: root, Tee: &complaints,
	}); err != nil {
		t.Fatalf("%v\n%s", err, complaints.String())
	}
	for program, says := range saysVersionAs {
		layout := filepath.Join(made, program, "oci")
		var named, index, image manifest
		decode(t, filepath.Join(layout, "index.json"), &named)
		decode(t, blob(layout, named.Manifests[0]), &index)
		decode(t, blob(layout, index.Manifests[0]), &image)
		var configuration struct {
			Architecture string
			Config       struct {
				User       string
				Entrypoint []string
			}
		}
		decode(t, blob(layout, image.Config), &configuration)
		if !slices.Equal(configuration.Config.Entrypoint, []string{"/" + program}) ||
			configuration.Architecture != runtime.GOARCH {
			t.Errorf("%s: %+v", program, configuration)
		}
		// As the manifests have it; a name would not tell a kubelet that it is not root.
		if user := configuration.Config.User; user != strconv.Itoa(nonroot)+":"+strconv.Itoa(nonroot) {
			t.Errorf("%s runs as %q", program, user)
		}
		if len(image.Layers) != 1 {
			t.Fatalf("%s: %d layers", program, len(image.Layers))
		}
		if modes := unpack(t, blob(layout, image.Layers[0]), unpacked); len(modes) != 1 || modes[program] != 0o555 {
			t.Errorf("%s: the image has %v", program, modes)
		}
		beginsAlone(t, unpacked, program, says+version)
	}
	if user := example(t).Spec.Template.Spec.SecurityContext.RunAsUser; *user != nonroot {
		t.Errorf("the example runs as %d", *user)
	}
}

// saysVersionAs is the beginning of the output of --version, for each program that has an image.
var saysVersionAs = map[string]string{car: car + " ", guard: guard + " ", "mock-driver": "mock-driver ",
	"kubectl-reclaim": "kubectl reclaim version "}

const (
	nonroot = 65532
	version = "v1.2.3-test"
)

// beginsAlone starts the program alone in its file system, as the image's user if this test may choose. says is its
// output for --version.
func beginsAlone(t *testing.T, dir, program, says string) {
	t.Helper()
	binary := filepath.Join(dir, program)
	file, err := elf.Open(binary)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = file.Close() }()
	if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) != 0 || slices.ContainsFunc(file.Progs,
		func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("%s is not static: %q, %v", program, libraries, err)
	}
	if runtime.GOOS != "linux" {
		return // which cannot run it
	}
	saysVersion(t, binary, says)
	command := exec.CommandContext(t.Context(), binary, "--help")
	command.Env = []string{}
	if os.Geteuid() == 0 {
		alone := t.TempDir()
		if err := os.Link(binary, filepath.Join(alone, program)); err != nil {
			t.Error(err)
			return
		}
		for _, folder := range []string{alone, filepath.Dir(alone)} {
			if err := os.Chmod(folder, 0o755); err != nil {
				t.Error(err)
			}
		}
		command.Path, command.Dir = path.Join("/", program), "/"
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: alone, Credential: &syscall.Credential{Uid: nonroot, Gid: nonroot}}
	}
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "--") {
		t.Errorf("%s --help: %v\n%s", program, err, out)
	}
}
