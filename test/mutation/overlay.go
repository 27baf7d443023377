package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
)

// build is a set of packages with all their mutants compiled in.
type build struct {
	root    string
	mutants []*mutant
	sources []*source
	// texts are the edited files by the paths of the real ones, and the files that are added.
	texts map[string][]byte
}

// generate makes all mutants of the scopes and edits.
func generate(ctx context.Context, root string, scopes []scope, edits []edit) (*build, error) {
	var folders []string
	for _, s := range scopes {
		folders = append(folders, s.folder)
	}
	for _, e := range edits {
		folders = append(folders, e.pkg)
	}
	slices.Sort(folders)
	folders = slices.Compact(folders)
	sources, err := load(ctx, root, folders)
	if err != nil {
		return nil, err
	}
	b := &build{root: root, sources: sources, texts: map[string][]byte{}}
	var stale error
	for i, src := range sources {
		stale = errors.Join(stale, b.add(src, folders[i], scopes, edits))
	}
	if stale != nil {
		return nil, stale
	}
	for i, src := range sources {
		if slices.ContainsFunc(b.mutants, func(m *mutant) bool { return m.pkg == folders[i] }) {
			b.texts[src.switches()] = []byte(switches(src.name, len(b.mutants)))
		}
	}
	return b, nil
}

// switches is the path of the file that is added to the package.
func (s *source) switches() string { return filepath.Join(s.folder, "mutation_switches.go") }

// add makes the mutants of one package.
func (b *build) add(src *source, folder string, scopes []scope, edits []edit) error {
	placed, err := places(src, folder, edits)
	if err != nil {
		return err
	}
	names := map[string]int{}
	next := func(g *generator, at token.Pos, what string) int {
		p := src.fset.Position(at)
		m := &mutant{number: len(b.mutants) + 1, pkg: folder, fn: g.fn, what: what, scope: g.scope,
			at: fmt.Sprintf("%s:%d", filepath.Base(p.Filename), p.Line)}
		if names[m.name()]++; names[m.name()] > 1 {
			m.what += fmt.Sprintf(" #%d", names[m.name()])
		}
		b.mutants = append(b.mutants, m)
		return m.number
	}
	for _, f := range src.files {
		g := &generator{rewriter: &rewriter{fset: src.fset}, src: src, file: f, next: next}
		for _, fn := range f.functions() {
			g.fn, g.scope = functionName(fn), &scope{folder: folder}
			i := slices.IndexFunc(scopes, func(s scope) bool { return s.folder == folder && s.inScope(f.path, g.fn) })
			if i >= 0 {
				g.scope = &scopes[i]
				g.function(fn)
			}
			for _, e := range placed[fn] {
				g.edit(fn, e)
			}
		}
		if len(g.edits) > 0 {
			b.texts[f.path] = g.apply(f.text)
		}
	}
	return nil
}

// check returns an error for each package that does not compile with its mutants.
func (b *build) check() (all error) {
	for _, src := range b.sources {
		fset := token.NewFileSet()
		var trees []*ast.File
		parse := func(path string, text []byte) {
			tree, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
			all, trees = errors.Join(all, err), append(trees, tree)
		}
		for _, f := range src.files {
			text, edited := b.texts[f.path]
			if !edited {
				text = f.text
			}
			parse(f.path, text)
		}
		if path := src.switches(); b.texts[path] != nil {
			parse(path, b.texts[path])
		}
		_, err := src.check(fset, trees, nil)
		all = errors.Join(all, err)
	}
	return all
}

// overlay writes the edited files, and the input of the go command's -overlay, into a folder.
func (b *build) overlay(folder string) (path string, err error) {
	replace := map[string]string{}
	for real, text := range b.texts {
		edited := filepath.Join(folder, fmt.Sprintf("%d-%s", len(replace), filepath.Base(real)))
		if err := os.WriteFile(edited, text, 0o600); err != nil {
			return "", err
		}
		replace[real] = edited
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(folder, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

const (
	// prefix begins the names that are added to a package.
	prefix = "mutation__"
	// variable is the environment variable that selects a mutant by its number.
	variable = "MUTATION"
	// reachedVariable is the environment variable that names the file to which the numbers of mutants are written
	// that are reached.
	reachedVariable = "MUTATION_REACHED"
)

// active is the expression which says that a mutant is the selected one.
func active(number int) string { return fmt.Sprintf("%sOn(%d)", prefix, number) }

// switches returns the file that is added to a package: by it, the compiled mutants learn which of them is active.
func switches(name string, mutants int) string {
	return fmt.Sprintf(switchesTemplate, name, mutants+1, variable, reachedVariable)
}

const switchesTemplate = `package %[1]s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutation__active  = func() int { n, _ := strconv.Atoi(os.Getenv("%[3]s")); return n }()
	mutation__log     = func() *os.File {
		if path := os.Getenv("%[4]s"); path != "" {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			return f
		}
		return nil
	}()
	mutation__reached [%[2]d]atomic.Bool
)

func mutation__On(n int) bool {
	if mutation__log != nil {
		mutation__note(n)
	}
	return n == mutation__active
}

func mutation__note(n int) {
	if !mutation__reached[n].Swap(true) {
		_, _ = mutation__log.WriteString(strconv.Itoa(n) + "\n")
	}
}

func mutation__Zero[T any](n int, value T) T {
	if mutation__On(n) {
		var zero T
		return zero
	}
	return value
}

func mutation__Pick[T any](n int, value, other T) T {
	if mutation__On(n) {
		return other
	}
	return value
}

func mutation__Without[S ~[]E, E any](first, count int, list S) S {
	for i := range count {
		if mutation__On(first + i) {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

func mutation__Less[M ~map[K]V, K comparable, V any](n int, key K, all M) M {
	if mutation__On(n) {
		delete(all, key)
	}
	return all
}
`
