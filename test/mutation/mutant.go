package main

import (
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"strings"
)

// mutant is one change of one function.
type mutant struct {
	// number selects it at run time. It is unique in the run.
	number int
	// pkg is the folder of the package, fn the function or Type.method, and what the operator with the printed node.
	pkg, fn, what string
	scope         *scope
	// at is the file and line.
	at string
}

// name addresses a mutant without a line number, so that an edit elsewhere in the file does not change it.
func (m *mutant) name() string { return m.pkg + ":" + m.fn + "/" + m.what }

// printed prints a node in one line.
func printed(fset *token.FileSet, node ast.Node) string {
	var b strings.Builder
	if err := printer.Fprint(&b, fset, node); err != nil {
		return fmt.Sprintf("%T", node)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// short shortens a printed node where a name needs no more.
func short(s string) string {
	const most = 110
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// functionName returns the name of a function, or Type.method.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, is := t.(*ast.StarExpr); is {
		t = star.X
	}
	switch generic := t.(type) {
	case *ast.IndexExpr:
		t = generic.X
	case *ast.IndexListExpr:
		t = generic.X
	}
	if of, is := t.(*ast.Ident); is {
		return of.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
