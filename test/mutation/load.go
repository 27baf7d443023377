package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// source is a package with its types.
type source struct {
	// folder is the package's, absolute.
	folder, name string
	fset         *token.FileSet
	files        []*file
	info         *types.Info
	types        *types.Package
	// path is how others import it, imports reads the compiled packages that it imports.
	path    string
	imports types.Importer
}

// file is one file of a package.
type file struct {
	path string
	text []byte
	tree *ast.File
}

// functions returns the functions and methods that have a body.
func (f *file) functions() (all []*ast.FuncDecl) {
	for _, d := range f.tree.Decls {
		if fn, is := d.(*ast.FuncDecl); is && fn.Body != nil {
			all = append(all, fn)
		}
	}
	return all
}

// listed is the go command's description of a package.
type listed struct {
	Dir, ImportPath, Name, Export string
	GoFiles                       []string
}

// load reads and checks the packages of these folders, in their order. It compiles their imports.
func load(ctx context.Context, root string, folders []string) ([]*source, error) {
	args := []string{"list", "-export", "-deps", "-json=Dir,ImportPath,Name,Export,GoFiles"}
	for _, folder := range folders {
		args = append(args, "./"+folder)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports, byFolder := map[string]string{}, map[string]listed{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		exports[p.ImportPath], byFolder[p.Dir] = p.Export, p
	}
	// One for all: the packages share most of their imports, and it reads each once.
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	var all []*source
	for _, folder := range folders {
		dir, err := filepath.Abs(filepath.Join(root, folder))
		if err != nil {
			return nil, err
		}
		s, err := check(byFolder[dir], imports)
		if err != nil {
			return nil, fmt.Errorf("check the package in %s: %w", folder, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// check parses a package and finds the types of its expressions.
func check(p listed, imports types.Importer) (*source, error) {
	s := &source{folder: p.Dir, name: p.Name, fset: token.NewFileSet(), path: p.ImportPath, imports: imports}
	s.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	var trees []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		tree, err := parser.ParseFile(s.fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		trees, s.files = append(trees, tree), append(s.files, &file{path: path, text: text, tree: tree})
	}
	var err error
	s.types, err = s.check(s.fset, trees, s.info)
	return s, err
}

// check finds the types of files of the package.
func (s *source) check(fset *token.FileSet, files []*ast.File, info *types.Info) (*types.Package, error) {
	config := types.Config{Importer: s.imports}
	return config.Check(s.path, fset, files, info)
}
