package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// fixed is the environment of a build in addition to GOOS and GOARCH. It sets every variable that would change the
// program and that a machine may have set, in the environment or by "go env -w". An empty value would not override
// the latter.
var fixed = []string{"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off", "GOFLAGS=-mod=readonly",
	"GOWORK=off"}

// compile builds a program for a platform into a file, and returns the build information that the go command
// recorded.
func compile(ctx context.Context, o options, p program, platform v1.Platform, file string) (
	*buildinfo.BuildInfo, error) {
	args := append([]string{"build"}, o.buildFlags...)
	command := exec.CommandContext(ctx, o.goCommand, append(args, "-o", file, p.pkg)...)
	command.Dir = o.root
	command.Env = append(append(os.Environ(), fixed...), "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("compile %s: %w\n%s", p.pkg, err, strings.TrimSpace(complaints.String()))
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the build information of %s: %w", p.pkg, err)
	}
	if err := check(info, platform); err != nil {
		return nil, fmt.Errorf("compile %s: %w", p.pkg, err)
	}
	return info, checkStatic(file)
}

// check rejects a program that is for another platform, or that another machine would compile differently.
func check(info *buildinfo.BuildInfo, platform v1.Platform) error {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
		if strings.HasPrefix(s.Key, "vcs") {
			return errors.New("it has stamps of the checkout, which not every build has; add -buildvcs=false")
		}
	}
	for key, want := range map[string]string{"GOOS": platform.OS, "GOARCH": platform.Architecture, "CGO_ENABLED": "0"} {
		if settings[key] != want {
			return fmt.Errorf("it is built with %s=%q, and not %q", key, settings[key], want)
		}
	}
	if settings["-trimpath"] != "true" {
		return errors.New("it has paths of this machine; add -trimpath")
	}
	if _, experiments, is := strings.Cut(info.GoVersion, " "); is {
		return fmt.Errorf("the toolchain has experiments (%s); unset GOEXPERIMENT", experiments)
	}
	return nil
}

// checkStatic rejects a program that needs a loader, which the image does not have.
func checkStatic(file string) error {
	program, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("read the compiled program: %w", err)
	}
	defer func() { _ = program.Close() }()
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP {
			return errors.New("the program is not static: it asks for a loader, which the image does not have")
		}
	}
	return nil
}
