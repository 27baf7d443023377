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
