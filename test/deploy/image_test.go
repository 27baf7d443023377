//go:build unix

package deploy

import (
	"debug/elf"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// instruction is a line of the Dockerfile: a word and what follows.
type instruction struct{ word, rest string }

// stages returns the instructions of each stage by its name.
func stages(t *testing.T) map[string][]instruction {
	t.Helper()
	text := regexp.MustCompile(`(?m)^#.*\n|\\\n`).ReplaceAllString(string(read(t, "Dockerfile")), "")
	all := map[string][]instruction{}
	stage := ""
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "FROM" {
			fields := strings.Fields(rest)
			stage = fields[len(fields)-1]
		}
		if word != "" {
			all[stage] = append(all[stage], instruction{word, strings.TrimSpace(rest)})
		}
	}
	return all
}

func of(stage []instruction, word string) (rests []string) {
	for _, i := range stage {
		if i.word == word {
			rests = append(rests, i.rest)
		}
	}
	return rests
}

// TestImagesContainStaticPrograms does what a builder of images does, on this machine: it copies what the
// Dockerfile copies, to an empty folder, and runs there what it runs. Then each program begins as in its image:
// alone in its file system, as the image's user.
func TestImagesContainStaticPrograms(t *testing.T) {
	all := stages(t)
	source, made := t.TempDir(), t.TempDir()
	copySources(t, all["build"], source)
	env := append(os.Environ(), "TARGETOS=", "TARGETARCH=", "VERSION="+version, "OUT="+made)
	for _, run := range of(all["build"], "RUN") {
		if strings.HasPrefix(run, "go mod download") {
			continue // the go command has them, or gets what it needs below
		}
		command := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(run, "/out/", "$OUT/"))
		command.Dir, command.Env = source, env
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", run, err, out)
		}
	}
	for _, program := range []string{"csi-reclaimer", guard, "mock-driver"} {
		stage, is := all[program]
		if !is {
			t.Errorf("there is no image %s", program)
			continue
		}
		if got, want := of(stage, "COPY"), []string{"--from=build /out/" + program + " /"}; !slices.Equal(got, want) {
			t.Errorf("%s: copies %q, want %q", program, got, want)
		}
		if got, want := of(stage, "ENTRYPOINT"), []string{`["/` + program + `"]`}; !slices.Equal(got, want) {
			t.Errorf("%s: begins with %q, want %q", program, got, want)
		}
		if base := of(stage, "FROM"); len(base) != 1 || !strings.HasPrefix(base[0], "nonroot ") {
			t.Errorf("%s: is made from %q", program, base)
		}
		beginsAlone(t, made, program)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(made, guard),
		"--version").Output(); err != nil || !strings.Contains(string(out), version) {
		t.Errorf("the version is %q, %v", out, err)
	}
	if base := of(all["nonroot"], "FROM"); len(base) != 1 || !strings.HasPrefix(base[0], "scratch ") {
		t.Errorf("the images are made from %q, want nothing else in them", base)
	}
	// As the manifests have it; a name would not tell a kubelet that it is not root.
	if user := of(all["nonroot"], "USER"); !slices.Equal(user,
		[]string{strconv.Itoa(nonroot) + ":" + strconv.Itoa(nonroot)}) {
		t.Errorf("the images run as %q", user)
	}
	if user := example(t).Spec.Template.Spec.SecurityContext.RunAsUser; *user != nonroot {
		t.Errorf("the example runs as %d", *user)
	}
}

const (
	nonroot = 65532
	version = "v1.2.3-test"
)

// copySources copies what the stage copies, which must be there.
func copySources(t *testing.T, stage []instruction, to string) {
	t.Helper()
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	copies := of(stage, "COPY")
	if len(copies) < 2 {
		t.Fatalf("the Dockerfile copies %q", copies)
	}
	for _, rest := range copies {
		fields := strings.Fields(rest)
		target := fields[len(fields)-1]
		for _, from := range fields[:len(fields)-1] {
			from = filepath.Join(root, from)
			info, err := os.Stat(from)
			if err != nil {
				t.Fatalf("COPY %s: %v", rest, err)
			}
			if info.IsDir() {
				err = os.CopyFS(filepath.Join(to, target), os.DirFS(from))
			} else {
				var data []byte
				if data, err = os.ReadFile(from); err == nil {
					err = os.WriteFile(filepath.Join(to, target, filepath.Base(from)), data, 0o600)
				}
			}
			if err != nil {
				t.Fatalf("COPY %s: %v", rest, err)
			}
		}
	}
}

// beginsAlone starts the program where nothing else is, as the image's user if this test may choose.
func beginsAlone(t *testing.T, dir, program string) {
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
