package main

import (
	"fmt"
	"go/ast"
	"strings"
)

// edit is a mutant that no operator makes. It is found by the function and the printed nodes.
type edit struct {
	// pkg is the folder of the package, in the function or Type.method, name what becomes of it.
	pkg, in, name string
	at            []place
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

// edit makes a mutant of the table in the function at hand.
func (g *generator) edit(f *ast.FuncDecl, e *edit) error {
	n := g.next(g, e.name)
	for _, p := range e.at {
		node := find(g, f, p)
		if node == nil {
			return fmt.Errorf("edit %q: %s has no node %q: the table is older than the code", e.name, e.in, p.node)
		}
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
	return nil
}

// find returns the node of a place.
func find(g *generator, f *ast.FuncDecl, p place) (found ast.Node) {
	count := 0
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if found != nil || n == nil {
			return false
		}
		fits := false
		switch n := n.(type) {
		case *ast.ExprStmt: // its expression is the same text
			fits = !p.zero && strings.HasPrefix(printed(g.fset, n), p.node)
		case ast.Expr:
			fits = p.before == "" && printed(g.fset, n) == p.node
		case ast.Stmt:
			_, block := n.(*ast.BlockStmt)
			fits = !block && (p.before != "" || p.instead != "") && strings.HasPrefix(printed(g.fset, n), p.node)
		}
		if fits {
			if count == p.nth {
				found = n
			}
			count++
		}
		return found == nil
	})
	return found
}
