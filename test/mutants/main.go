package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

const usage = `Take guards out of pkg/reclaim, pkg/provision and its engine, pkg/intree, pkg/inuse, pkg/admission and pkg/leaks one at a time; the unit tests and the model must notice each.

  mutants [--only TEXT]     TEXT is part of a mutant's name, or of its package's path

To be run in the root of the repository. The exit status is 1 if a mutant lives.

`

func main() {
	only := flag.String("only", "", "try only mutants whose name, or whose package's path, contains this")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage); flag.PrintDefaults() }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	alive, err := run(ctx, *only)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	case alive > 0:
		os.Exit(1)
	}
}

// row is a line of the table.
const row = "%-75s  %-6s  %-9s  %s\n"

// run tries the mutants and prints what became of them; alive is how many nobody noticed.
func run(ctx context.Context, only string) (alive int, err error) {
	folder, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	fmt.Printf(row, "mutant", "tests", "model", "by")
	tried := 0
	for _, m := range mutants() {
		if !strings.Contains(m.name, only) && !strings.Contains(m.folder(), only) {
			continue
		}
		tried++
		o, err := m.try(ctx, folder)
		if err != nil {
			return alive, fmt.Errorf("mutant %q: %w", m.name, err)
		}
		if !o.byTests || !o.byModel && m.world != "" {
			alive++
		}
		fmt.Printf(row, m.name, killed(o.byTests), o.model(m), o.why+m.because)
	}
	fmt.Printf("mutants: tried=%d killed=%d alive=%d\n", tried, tried-alive, alive)
	return alive, nil
}

// outcome is what became of a mutant.
type outcome struct {
	byTests, byModel bool
	// why is the promise that the model saw broken.
	why string
}

func (o outcome) model(m mutant) string {
	if m.world == "" {
		return "not asked"
	}
	return killed(o.byModel)
}

func killed(yes bool) string {
	if yes {
		return "killed"
	}
	return "ALIVE"
}

// try compiles the mutant in and has the tests and the model look at it.
func (m mutant) try(ctx context.Context, folder string) (o outcome, err error) {
	overlay, err := m.write(folder)
	if err != nil {
		return o, err
	}
	// A mutant that does not compile would count as killed.
	if out, err := command(ctx, "go", "vet", "-overlay", overlay, m.folder()); err != nil {
		return o, fmt.Errorf("compile: %w\n%s", err, out)
	}
	tests := []string{"test", "-overlay", overlay, "-short", "-failfast"}
	if m.live != "" {
		tests = append(tests, "-tags", "controlplane", "-run", m.live)
	}
	_, err = command(ctx, "go", append(tests, m.folder())...)
	o.byTests = err != nil
	if m.world != "" {
		out, err := command(ctx, "go", "run", "-overlay", overlay, "-tags", "model", "./test/model/cmd/model", "--world", m.world)
		o.byModel, o.why = err != nil, promise(out)
		if o.byModel && o.why == "" {
			return o, fmt.Errorf("run the model: %w\n%s", err, out)
		}
	}
	return o, ctx.Err()
}

// write writes the edited file and the overlay that puts it in the place of the real one.
func (m mutant) write(folder string) (overlay string, err error) {
	path, err := filepath.Abs(filepath.Join(m.folder(), m.file))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(m.before)); n != 1 {
		return "", fmt.Errorf("%s has %d places like %q, want 1: the table is older than the code", path, n, m.before)
	}
	edited := filepath.Join(folder, m.file)
	if err := os.WriteFile(edited, bytes.Replace(source, []byte(m.before), []byte(m.after), 1), 0o600); err != nil {
		return "", err
	}
	overlay = filepath.Join(folder, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: edited}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// command runs a program and returns what it said. An error means that it said no.
func command(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return string(out), err
}

// promise finds in the model's words what was broken first.
func promise(out string) string {
	_, rest, found := strings.Cut(out, "\nworld ")
	if !found {
		return ""
	}
	line, _, _ := strings.Cut(rest, "\n")
	_, what, _ := strings.Cut(line, "\": ")
	return what
}
