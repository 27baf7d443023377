package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// model is the model checker with all mutants compiled in.
type model struct {
	once   sync.Once
	binary string
	err    error
}

// build compiles the model checker, and checks that it has the worlds.
func (m *model) build(ctx context.Context, r *runner) error {
	m.binary = filepath.Join(r.scratch, "model")
	out, ok, err := r.command(ctx, r.build.root, nil, "go", "build", "-overlay", r.overlay, "-o", m.binary,
		"./test/model/cmd/model")
	if err == nil && !ok {
		err = fmt.Errorf("compile the model:\n%s", out)
	}
	if err != nil {
		return err
	}
	list, _, err := r.command(ctx, r.build.root, nil, m.binary, "--list")
	if err != nil {
		return err
	}
	for _, names := range worlds {
		for _, name := range names {
			if !strings.Contains("\n"+list, "\n"+name+": ") {
				return fmt.Errorf("the model has no world %q", name)
			}
		}
	}
	return nil
}

// askModel returns the first world of the model that shows a mutant, or "".
func (r *runner) askModel(ctx context.Context, m *mutant) (string, error) {
	all := worlds[m.pkg]
	if len(all) == 0 {
		return "", nil
	}
	r.model.once.Do(func() { r.model.err = r.model.build(ctx, r) })
	if r.model.err != nil {
		return "", r.model.err
	}
	for _, world := range all {
		env := []string{variable + "=" + strconv.Itoa(m.number)}
		out, ok, err := r.command(ctx, r.build.root, env, r.model.binary, "--world", world)
		if err != nil {
			return "", err
		}
		if !ok {
			return fmt.Sprintf("world %q: %s", world, promise(out)), nil
		}
	}
	return "", nil
}

// promise finds the first broken promise in the model's output.
func promise(out string) string {
	_, rest, found := strings.Cut(out, "\nworld ")
	if !found {
		return "the program ends"
	}
	line, _, _ := strings.Cut(rest, "\n")
	_, what, _ := strings.Cut(line, "\": ")
	return what
}
