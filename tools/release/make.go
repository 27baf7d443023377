package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type release struct {
	options
	checkout
	// scratch holds temporary files of the steps, and made becomes the folder of the release.
	scratch, made string
	notes         string
	images        images
	// key signs the checksums, unless it is nil.
	key *ecdsa.PrivateKey
}

// run creates the release in a temporary folder, and renames that folder once it is complete.
func run(ctx context.Context, o options) error {
	from, err := readCheckout(ctx, o)
	if err != nil {
		return err
	}
	if o.trial {
		fmt.Fprintln(o.progress, "warning: this is a trial: do not publish it")
	}
	notes, err := readNotes(o.root, o.version, o.trial)
	if err != nil {
		return err
	}
	var key *ecdsa.PrivateKey
	if o.cosignKey != "" {
		if key, err = readKey(o.cosignKey, o.cosignPassword); err != nil {
			return fmt.Errorf("COSIGN_KEY=%s (--cosign-key): %w", o.cosignKey, err)
		}
	}
	target := filepath.Join(o.output, o.version)
	if err := replaceable(target); err != nil {
		return err
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return fmt.Errorf("make the output folder: %w", err)
	}
	scratch, err := os.MkdirTemp(o.output, ".making-"+o.version+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	r := &release{options: o, checkout: from, scratch: scratch, made: filepath.Join(scratch, o.version), notes: notes,
		key: key}
	if err := r.make(ctx); err != nil {
		return err
	}
	if err := from.unchanged(ctx, o.root); err != nil {
		return err
	}
	if err := publish(r.made, target, scratch); err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.out, filepath.Clean(target))
	return err
}

// replaceable rejects an existing folder that this program has not written.
func replaceable(folder string) error {
	_, err := os.Lstat(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, sumsFile))
	}
	if err != nil {
		return fmt.Errorf("%s is in the way, and is no release: %w; remove it, or choose another folder by RELEASE "+
			"(--output)", folder, err)
	}
	return nil
}

// publish replaces an earlier release of the version by two renames, between which neither release exists.
func publish(made, target, scratch string) error {
	if err := os.Rename(target, filepath.Join(scratch, "earlier")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace the earlier release: %w", err)
	}
	return os.Rename(made, target)
}

func (r *release) make(ctx context.Context) error {
	type step struct {
		name string
		do   func(context.Context) error
	}
	steps := []step{
		{"images for " + r.platforms, r.makeImages},
		{"kubectl plugin for " + r.pluginPlatforms, r.makePlugin},
		{"charts", r.makeCharts},
		{"manifests, alerts and dashboard", r.makeManifests},
		{"install files", r.makeInstalls},
		{"release notes", r.makeNotes},
		{"checksums", func(context.Context) error { return sums(r.made) }},
	}
	if r.key != nil {
		steps = append(steps, step{"signature", func(context.Context) error { return sign(r.made, r.key) }})
	}
	if err := os.Mkdir(r.made, 0o755); err != nil {
		return err
	}
	for n, step := range steps {
		if ctx.Err() != nil {
			return errors.New("interrupted: nothing was made")
		}
		fmt.Fprintf(r.progress, "%s, %d of %d: %s\n", r.version, n+1, len(steps), step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (r *release) folder(path ...string) (string, error) {
	folder := filepath.Join(append([]string{r.made}, path...)...)
	return folder, os.MkdirAll(folder, 0o755)
}

// runMake runs a target of the Makefile, with the given variables and no others of this machine.
func (r *release) runMake(ctx context.Context, out io.Writer, target string, variables ...string) error {
	args := append([]string{"--no-print-directory", "-C", r.root, target, "GO=" + r.goCommand, "VERSION=" + r.version},
		variables...)
	command := exec.CommandContext(ctx, r.makeCommand, args...)
	// make forwards SIGTERM, but not SIGKILL, to the programs that it runs.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = time.Minute
	command.Env = r.environment()
	command.Stdout, command.Stderr = out, r.progress
	if err := command.Run(); err != nil {
		return fmt.Errorf("make %s: %w", target, err)
	}
	return nil
}

// environment sets the time in archives, and drops the variables that an outer make passes on, because they would
// override the Makefile's.
func (r *release) environment() (env []string) {
	dropped := []string{"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "COSIGN_PASSWORD"}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !slices.Contains(dropped, name) {
			env = append(env, variable)
		}
	}
	return append(env, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.created.Unix()))
}

func (r *release) makeImages(ctx context.Context) error {
	all := filepath.Join(r.scratch, "images")
	var digests strings.Builder
	if err := r.runMake(ctx, &digests, "images", "IMAGES="+all, "IMAGE_PLATFORMS="+r.platforms, "ONLY=", "PUSH=",
		"REVISION="); err != nil {
		return err
	}
	programs, err := os.ReadDir(all)
	if err != nil {
		return err
	}
	for _, program := range programs {
		r.images.programs = append(r.images.programs, program.Name())
		if err := r.takeImage(filepath.Join(all, program.Name()), program.Name()); err != nil {
			return err
		}
	}
	r.images.version = r.version
	return os.WriteFile(filepath.Join(r.made, "images", "digests.txt"), []byte(digests.String()), 0o644)
}

// takeImage takes the files of a program's image, except for the layout, which the archive contains as well.
func (r *release) takeImage(from, program string) error {
	into, err := r.folder("images", program)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(from, program+".tar")); err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.IsDir() {
			continue
		}
		if err := os.Rename(filepath.Join(from, file.Name()), filepath.Join(into, file.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) makePlugin(ctx context.Context) error {
	return r.runMake(ctx, r.progress, "krew", "KREW="+filepath.Join(r.made, "krew"), "PLATFORMS="+r.pluginPlatforms)
}

func (r *release) makeManifests(context.Context) error {
	into, err := r.folder("manifests")
	if err != nil {
		return err
	}
	if err := r.images.manifests(r.root, into); err != nil {
		return err
	}
	into, err = r.folder("monitoring")
	if err != nil {
		return err
	}
	for _, file := range []string{"alerts/csi-reclaimer.rules.yaml", "dashboard/csi-reclaimer.json"} {
		if err := copyFile(filepath.Join(r.root, "deploy", file), filepath.Join(into, filepath.Base(file))); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) makeNotes(context.Context) error {
	if err := copyFile(filepath.Join(r.root, "LICENSE"), filepath.Join(r.made, "LICENSE")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.made, "RELEASE_NOTES.md"), []byte(r.notes), 0o644)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
