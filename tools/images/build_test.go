package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// goVersion returns the version of the go command that compiles the tiny program.
func goVersion(t *testing.T) string {
	t.Helper()
	out := must(exec.CommandContext(t.Context(), "go", "env", "GOVERSION").Output())(t)
	return strings.TrimSpace(string(out))
}

// Each guard is tested separately.
func TestCheckBuildSettings(t *testing.T) {
	platform := v1.Platform{OS: "linux", Architecture: "arm64"}
	right := func() *buildinfo.BuildInfo {
		return &buildinfo.BuildInfo{GoVersion: "go1.26.8", Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"},
			{Key: "CGO_ENABLED", Value: "0"}, {Key: "GOARCH", Value: "arm64"}, {Key: "GOOS", Value: "linux"}}}
	}
	ok(t, check(right(), platform))
	for want, change := range map[string]func(*buildinfo.BuildInfo){
		"-trimpath":    func(i *buildinfo.BuildInfo) { i.Settings[0].Value = "false" },
		"CGO_ENABLED":  func(i *buildinfo.BuildInfo) { i.Settings[1].Value = "1" },
		"GOARCH":       func(i *buildinfo.BuildInfo) { i.Settings[2].Value = "amd64" },
		"GOOS":         func(i *buildinfo.BuildInfo) { i.Settings[3].Value = "plan9" },
		"-buildvcs":    func(i *buildinfo.BuildInfo) { i.Settings = append(i.Settings, debug.BuildSetting{Key: "vcs.time"}) },
		"GOEXPERIMENT": func(i *buildinfo.BuildInfo) { i.GoVersion += " X:nosuch" },
	} {
		info := right()
		change(info)
		wantError(t, check(info, platform), want)
	}
}

func TestCheckStatic(t *testing.T) {
	write := func(kind elf.ProgType) string {
		var file bytes.Buffer
		header := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Ehsize: 64,
			Phentsize: 56, Phnum: 1, Shentsize: 64}
		copy(header.Ident[:], elf.ELFMAG+string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}))
		for _, part := range []any{header, elf.Prog64{Type: uint32(kind)}} {
			ok(t, binary.Write(&file, binary.LittleEndian, part))
		}
		name := filepath.Join(t.TempDir(), "program")
		ok(t, os.WriteFile(name, file.Bytes(), 0o755))
		return name
	}
	if err := checkStatic(write(elf.PT_LOAD)); err != nil {
		t.Error(err)
	}
	wantError(t, checkStatic(write(elf.PT_INTERP)), "not static")
}

// The error names the program and the platform, and repeats the compiler's message.
func TestCompilerErrors(t *testing.T) {
	o := testOptions(checkout(t))
	ok(t, os.WriteFile(filepath.Join(o.root, "cmd/tiny/main.go"), []byte("package main\n\nfunc main() { no }\n"),
		0o644))
	wantError(t, run(t.Context(), o), "image of tiny", "linux/amd64", "./cmd/tiny", "undefined: no")
	if _, err := os.Stat(filepath.Join(o.output, tiny.name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}

func TestSource(t *testing.T) {
	o := testOptions(checkout(t))
	clean, err := readSource(t.Context(), o)
	if err != nil || clean.modified || clean.created.Unix() != testEpoch || len(clean.revision) != 40 ||
		clean.commit() != clean.revision {
		t.Errorf("%+v, %v", clean, err)
	}
	o.epoch = "5"
	if s, err := readSource(t.Context(), o); err != nil || s.created.Unix() != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	o.epoch = "today"
	_, err = readSource(t.Context(), o)
	wantError(t, err, "SOURCE_DATE_EPOCH", `"today"`)

	// The build also compiles files that git does not track.
	ok(t, os.WriteFile(filepath.Join(o.root, "cmd/tiny/more.go"), []byte("package main\n"), 0o644))
	o.epoch = ""
	dirty, err := readSource(t.Context(), o)
	if err != nil || !dirty.modified || dirty.revision != clean.revision+"-dirty" || dirty.commit() != "" {
		t.Errorf("%+v, %v", dirty, err)
	}
}

func TestSourceWithoutGit(t *testing.T) {
	o := testOptions(t.TempDir())
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(o.root))
	_, err := readSource(t.Context(), o)
	wantError(t, err, "the commit of "+o.root, "REVISION", "SOURCE_DATE_EPOCH")
	o.revision = "r1"
	_, err = readSource(t.Context(), o)
	wantError(t, err, "SOURCE_DATE_EPOCH")
	o.epoch = "5"
	if s, err := readSource(t.Context(), o); err != nil || s.revision != "r1" || s.created.Unix() != 5 ||
		s.commit() != "" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestCommandLine(t *testing.T) {
	o, err := parse([]string{"--version=v1", "--platforms", "linux/arm64 linux/amd64", "--only=mock-driver,volume-guard",
		"--", "-trimpath"}, io.Discard, io.Discard)
	if err != nil || fmt.Sprint(o.platforms) != "[linux/arm64 linux/amd64]" || fmt.Sprint(o.buildFlags) != "[-trimpath]" ||
		len(o.programs) != 2 || o.programs[0].name != "volume-guard" || o.programs[1].name != "mock-driver" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parse([]string{"--version=v1"}, io.Discard, io.Discard); err != nil || len(o.programs) != 4 ||
		fmt.Sprint(o.platforms) != "[linux/amd64 linux/arm64]" {
		t.Errorf("%+v, %v", o, err)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "no version"},
		{[]string{"--version=v1+build"}, "v1+build"},
		{[]string{"--version=.1"}, "tag"},
		{[]string{"--version=v1", "--only=kubectl"}, "csi-reclaimer, volume-guard, kubectl-reclaim, mock-driver"},
		{[]string{"--version=v1", "--only=mock-driver,mock-driver"}, "twice"},
		{[]string{"--version=v1", "--platforms=amd64"}, "linux/amd64"},
		{[]string{"--version=v1", "--platforms=windows/amd64"}, "linux/amd64"},
		{[]string{"--version=v1", "--platforms="}, "no platform"},
		{[]string{"--version=v1", "--platforms=linux/arm64,linux/arm64"}, "twice"},
		{[]string{"--nosuch"}, "--help"},
	} {
		_, err := parse(test.args, io.Discard, io.Discard)
		wantError(t, err, test.want)
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if _, err := parse([]string{"--help"}, &out, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"PUSH=registry.example.com/storage", "make images VERSION", "-push registry/path",
		"-overwrite", "SOURCE_DATE_EPOCH", "DOCKER_CONFIG", "ctr -n k8s.io images import"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it has no %q:\n%s", want, out.String())
		}
	}
}
