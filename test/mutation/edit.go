package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// edit is a mutant that no operator makes. It is found by the printed nodes.
type edit struct {
	// pkg is the folder of the package, and name the name of the mutant.
	pkg, name string
	at        []place
	// in is the function or Type.method, a pattern of path.Match. It is needed only where several functions of the
	// package have the nodes, so that a function may be split or renamed.
	in string
}

// place is a node that an edit changes. Exactly one of before, instead and zero is set.
type place struct {
	// node is an expression as go/printer prints it, or how a statement begins. The nth one counts, from 0.
	node string
	nth  int
	// before is inserted before the statement; ON is the condition that the mutant is active.
	before string
	// instead replaces the expression, whose operands both exist, or the statement.
	instead string
	// zero has the expression return its zero value.
	zero bool
}

// places returns the edits of a package by the functions that have all their nodes.
func places(src *source, folder string, edits []edit) (placed map[*ast.FuncDecl][]*edit, stale error) {
	placed = map[*ast.FuncDecl][]*edit{}
	for i := range edits {
		e := &edits[i]
		if e.pkg != folder {
			continue
		}
		var have []*ast.FuncDecl
		for _, f := range src.files {
			for _, fn := range f.functions() {
				if e.fits(src, fn) {
					have = append(have, fn)
				}
			}
		}
		if len(have) != 1 {
			stale = errors.Join(stale, fmt.Errorf("edit %q: of the functions %q of %s, %d have the node %q and the rest, "+
				"want 1: the table is older than the code, or names too little", e.name, e.in, e.pkg, len(have), e.at[0].node))
			continue
		}
		placed[have[0]] = append(placed[have[0]], e)
	}
	return placed, stale
}

// fits returns whether a function has all nodes of the edit.
func (e *edit) fits(src *source, fn *ast.FuncDecl) bool {
	if e.in != "" && !matches(e.in, functionName(fn)) {
		return false
	}
	for _, p := range e.at {
		if find(src.fset, fn, p) == nil {
			return false
		}
	}
	return true
}

// edit makes a mutant of the table in the function at hand, which has its nodes.
func (g *generator) edit(f *ast.FuncDecl, e *edit) {
	n := g.next(g, find(g.fset, f, e.at[0]).Pos(), e.name)
	for _, p := range e.at {
		node := find(g.fset, f, p)
		expression, isExpression := node.(ast.Expr)
		switch {
		case p.before != "":
			g.replace(node.Pos(), node.Pos(), strings.ReplaceAll(p.before, "ON", active(n))+"; ")
		case p.zero && isExpression:
			g.wrap(node, fmt.Sprintf("%sZero(%d, ", prefix, n), ")")
		case isExpression && g.boolean(expression):
			g.wrap(node, fmt.Sprintf("(%s && (%s) || !%s && (", active(n), p.instead, active(n)), "))")
		case isExpression:
			g.wrap(node, fmt.Sprintf("%sPick(%d, ", prefix, n), ", "+p.instead+")")
		default:
			g.wrap(node, fmt.Sprintf("if %s { %s } else { ", active(n), p.instead), " }")
		}
	}
}

// find returns the node of a place, nil if the function has none.
func find(fset *token.FileSet, f *ast.FuncDecl, p place) (found ast.Node) {
	count := 0
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if found != nil || n == nil {
			return false
		}
		if p.fits(fset, n) {
			if count == p.nth {
				found = n
			}
			count++
		}
		return found == nil
	})
	return found
}

// fits returns whether a node is one of the place's.
func (p place) fits(fset *token.FileSet, n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ExprStmt: // its expression is the same text
		return !p.zero && strings.HasPrefix(printed(fset, n), p.node)
	case ast.Expr:
		return p.before == "" && printed(fset, n) == p.node
	case *ast.BlockStmt:
	case ast.Stmt:
		return (p.before != "" || p.instead != "") && strings.HasPrefix(printed(fset, n), p.node)
	}
	return false
}
