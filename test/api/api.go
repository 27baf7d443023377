// Package api pins the exported names of a library package in a file, each with the reason why it is public: a name
// that embedders may use cannot be taken back, so each addition is to be seen in a review.
package api

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update-api", false, "write the exported names into the file, with the reasons that it has")

// Check compares the exported names of the package in a folder with those in a file. A line of the file is a name, two
// spaces or more, and the reason why the name is public. Names of methods begin with their type.
func Check(t *testing.T, folder, file string) {
	t.Helper()
	names, err := exported(folder)
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, write(names, reasons), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, name := range names {
		if reasons[name] == "" {
			t.Errorf("%s is exported, and %s gives no reason for it", name, file)
		}
		delete(reasons, name)
	}
	for name := range reasons {
		t.Errorf("%s is in %s, and not exported", name, file)
	}
}

// exported returns the exported constants, variables, functions, types and methods, sorted.
func exported(folder string) (names []string, err error) {
	all := token.NewFileSet()
	paths, err := fs.Glob(os.DirFS(folder), "*.go")
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w", folder, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(all, folder+"/"+path, nil, 0)
		if err != nil {
			return nil, err
		}
		for _, decl := range parsed.Decls {
			names = append(names, namesOf(decl)...)
		}
	}
	slices.Sort(names)
	return names, nil
}

func namesOf(decl ast.Decl) (names []string) {
	add := func(prefix string, ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names = append(names, prefix+id.Name)
			}
		}
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add("", d.Name)
		} else if of := receiver(d.Recv.List[0].Type); ast.IsExported(of) {
			add(of+".", d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				add("", s.Name)
			case *ast.ValueSpec:
				add("", s.Names...)
			}
		}
	}
	return names
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// read returns the reasons in a file by their names; a file that does not exist has none.
func read(file string) (map[string]string, error) {
	reasons := map[string]string{}
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		name, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" {
			reasons[name] = strings.TrimSpace(reason)
		}
	}
	return reasons, nil
}

func write(names []string, reasons map[string]string) []byte {
	var b bytes.Buffer
	for _, name := range names {
		fmt.Fprintf(&b, "%-32s  %s\n", name, reasons[name])
	}
	return b.Bytes()
}
