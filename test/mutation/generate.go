package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// generator makes the mutants of one file and compiles them in.
type generator struct {
	*rewriter
	src   *source
	file  *file
	scope *scope
	// fn is the function at hand.
	fn string
	// next makes a mutant of the code at a position and returns its number.
	next func(g *generator, at token.Pos, what string) int
}

// inScope returns whether a scope has a function of a file.
func (s *scope) inScope(path, fn string) bool {
	switch _, method, _ := strings.Cut(fn, "."); method {
	case "String", "Error":
		return false // a text for people
	case "Intern":
		return false // it saves memory
	}
	file := filepath.Base(path)
	return (s.files == "" || matches(s.files, file)) && !matches(s.except, file) &&
		(s.funcs == "" || matches(s.funcs, fn))
}

func matches(patterns, name string) bool {
	for pattern := range strings.FieldsSeq(patterns) {
		if ok, err := filepath.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

// function makes the mutants of a function.
func (g *generator) function(f *ast.FuncDecl) {
	g.fn = functionName(f)
	ast.Inspect(f.Body, g.node)
}

// node makes the mutants of one node, and reports whether its children have some.
func (g *generator) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		if g.onlyLogs(n) {
			if n.Init != nil {
				ast.Inspect(n.Init, g.node)
			}
			return false
		}
		g.ifStmt(n)
	case *ast.SwitchStmt:
		g.switchStmt(n)
	case *ast.BinaryExpr:
		g.operands(n)
	case *ast.ReturnStmt:
		g.values("return ", n.Results, true)
	case *ast.AssignStmt:
		g.values(printed(g.fset, n.Lhs[0])+" "+n.Tok.String()+" ", n.Rhs, n.Tok == token.ASSIGN)
	case *ast.CallExpr:
		g.values(printed(g.fset, n.Fun)+": argument ", n.Args, false)
	case *ast.CompositeLit:
		g.literal(n)
	case *ast.BlockStmt:
		g.statements(n.List)
	case *ast.CaseClause:
		g.statements(n.Body)
	}
	return true
}

// force replaces the value of an expression.
func (g *generator) force(e ast.Expr, value bool, what string) {
	if g.src.info.Types[e].Value != nil {
		return // a constant
	}
	n := g.next(g, e.Pos(), what)
	if value {
		g.wrap(e, fmt.Sprintf("(%s || (", active(n)), "))")
	} else {
		g.wrap(e, fmt.Sprintf("(!%s && (", active(n)), "))")
	}
}

// ifStmt takes a condition out: it never holds, and where it is no check of an error it always does.
func (g *generator) ifStmt(n *ast.IfStmt) {
	head := printed(g.fset, n.Cond)
	if n.Init != nil {
		head = printed(g.fset, n.Init) + "; " + head
	}
	g.force(n.Cond, false, "if "+short(head)+g.then(n.Body.List)+" → never")
	if is(n.Cond, token.LAND) || leaves(n.Body.List) {
		return // to take its operands out is finer, and a function that always leaves early does nothing
	}
	g.force(n.Cond, true, "if "+short(head)+g.then(n.Body.List)+" → always")
}

// leaves returns whether statements end the function or the turn of a loop.
func leaves(list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch list[len(list)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// then returns the beginning of the statements that a condition guards, to distinguish conditions by it.
func (g *generator) then(list []ast.Stmt) string {
	if len(list) == 0 {
		return ""
	}
	return " {" + short(printed(g.fset, list[0])) + "}"
}

// onlyLogs returns whether a condition decides about nothing but logs and traces.
func (g *generator) onlyLogs(n *ast.IfStmt) bool {
	if !g.logs(n.Body.List) {
		return false
	}
	switch otherwise := n.Else.(type) {
	case *ast.BlockStmt:
		return g.logs(otherwise.List)
	case *ast.IfStmt:
		return g.onlyLogs(otherwise)
	}
	return true
}

// logs returns whether statements do nothing but log, or add a trace to the context.
func (g *generator) logs(list []ast.Stmt) bool {
	for _, s := range list {
		text := printed(g.fset, s)
		if _, is := s.(*ast.ExprStmt); !is || !quiet(text) {
			if call, assigns := strings.CutPrefix(text, "ctx = "); !assigns || !quiet(call) {
				return false
			}
		}
	}
	return true
}

// switchStmt takes each case out. A switch that compares a tag becomes one that compares in its cases.
func (g *generator) switchStmt(n *ast.SwitchStmt) {
	if n.Tag == nil {
		for _, c := range n.Body.List {
			for _, e := range c.(*ast.CaseClause).List {
				g.force(e, false, "case "+short(printed(g.fset, e)))
			}
		}
		return
	}
	tag, hasDefault := printed(g.fset, n.Tag), false
	for _, c := range n.Body.List {
		hasDefault = hasDefault || c.(*ast.CaseClause).List == nil
	}
	const compared = prefix + "Tag"
	if n.Init != nil {
		g.replace(n.Switch, n.Init.Pos(), "{ ")
		g.replace(n.Init.End(), n.Tag.Pos(), "; switch "+compared+" := ")
		g.replace(n.Body.Rbrace, n.Body.Rbrace+1, "} }")
	} else {
		g.replace(n.Tag.Pos(), n.Tag.Pos(), compared+" := ")
	}
	g.replace(n.Tag.End(), n.Tag.End(), "; ")
	g.replace(n.Body.Lbrace+1, n.Body.Lbrace+1, "case "+compared+" != "+compared+": panic(0);")
	for _, c := range n.Body.List {
		clause := c.(*ast.CaseClause)
		for _, e := range clause.List {
			if len(clause.Body) == 0 && !hasDefault {
				g.wrap(e, compared+" == (", ")")
				continue // without the case, nothing happens either
			}
			m := g.next(g, e.Pos(), "switch "+tag+": case "+short(printed(g.fset, e)))
			g.wrap(e, fmt.Sprintf("(!%s && %s == (", active(m), compared), "))")
		}
	}
}

// operands takes each operand of && and || out.
func (g *generator) operands(n *ast.BinaryExpr) {
	if n.Op != token.LAND && n.Op != token.LOR {
		return
	}
	for _, operand := range []ast.Expr{n.X, n.Y} {
		if !is(operand, n.Op) { // of a && b && c, each alone
			g.force(operand, n.Op == token.LAND, "without "+short(printed(g.fset, operand))+" "+n.Op.String())
		}
	}
}

// values makes booleans that are returned, assigned or passed true and false.
func (g *generator) values(what string, list []ast.Expr, names bool) {
	for _, e := range list {
		if !g.boolean(e) {
			continue
		}
		switch ast.Unparen(e).(type) {
		case *ast.BinaryExpr, *ast.UnaryExpr, *ast.CallExpr:
		default:
			if !names {
				continue
			}
		}
		name := what + short(printed(g.fset, e))
		if !is(e, token.LOR) { // to take its operands out is finer
			g.force(e, false, name+" → false")
		}
		if !is(e, token.LAND) {
			g.force(e, true, name+" → true")
		}
	}
}

// literal takes fields that bind a write or end a wait out, and the elements of lists where the scope says so.
func (g *generator) literal(n *ast.CompositeLit) {
	t := g.src.info.Types[n].Type
	if t == nil {
		return
	}
	name := "{…}"
	if n.Type != nil {
		name = printed(g.fset, n.Type)
	}
	switch t.Underlying().(type) {
	case *types.Struct:
		for _, e := range n.Elts {
			if kv, is := e.(*ast.KeyValueExpr); is && matches(fields, printed(g.fset, kv.Key)) {
				g.zero(kv.Value, name+": without "+printed(g.fset, kv.Key))
			}
		}
	case *types.Slice:
		if g.scope.elements {
			g.list(n, name)
		}
	case *types.Map:
		if g.scope.elements {
			g.keys(n, name)
		}
	}
}

// list takes each element of a list out.
func (g *generator) list(n *ast.CompositeLit, name string) {
	if len(n.Elts) == 0 {
		return
	}
	first := 0
	for i, e := range n.Elts {
		if m := g.next(g, e.Pos(), name+": without "+short(printed(g.fset, e))); i == 0 {
			first = m
		}
	}
	g.wrap(n, fmt.Sprintf("%sWithout(%d, %d, ", prefix, first, len(n.Elts)), ")")
}

// keys takes each key of a map out.
func (g *generator) keys(n *ast.CompositeLit, name string) {
	for _, e := range n.Elts {
		if kv, is := e.(*ast.KeyValueExpr); is {
			key := printed(g.fset, kv.Key)
			g.wrap(n, fmt.Sprintf("%sLess(%d, %s, ", prefix, g.next(g, e.Pos(), name+": without "+key), key), ")")
		}
	}
}

// zero has an expression return its type's zero value.
func (g *generator) zero(e ast.Expr, what string) {
	tv := g.src.info.Types[e]
	if tv.Type == nil || tv.IsNil() {
		return
	}
	argument := ""
	if tv.Value != nil { // its type cannot be inferred from a constant
		unnamed := false
		argument = "[" + types.TypeString(tv.Type, func(p *types.Package) string {
			unnamed = unnamed || p != g.src.types
			return ""
		}) + "]"
		if unnamed {
			argument = ""
		}
	}
	g.wrap(e, fmt.Sprintf("%sZero%s(%d, ", prefix, argument, g.next(g, e.Pos(), what)), ")")
}

// statements drops statements that change something, where the scope says so.
func (g *generator) statements(list []ast.Stmt) {
	if !g.scope.statements {
		return
	}
	for _, s := range list {
		text := printed(g.fset, s)
		switch s := s.(type) {
		case *ast.ExprStmt:
			if _, is := s.X.(*ast.CallExpr); !is || quiet(text) {
				continue
			}
		case *ast.DeferStmt:
			if quiet(strings.TrimPrefix(text, "defer ")) {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || strings.HasPrefix(text, "_ ") || strings.HasPrefix(text, "ctx ") {
				continue
			}
		case *ast.IncDecStmt:
		default:
			continue
		}
		g.wrap(s, fmt.Sprintf("if !%s { ", active(g.next(g, s.Pos(), "without "+short(text)))), " }")
	}
}

// quiet returns whether a call does nothing that a test is to notice: it logs, it saves memory, or only a race would
// show it.
func quiet(call string) bool {
	head, _, _ := strings.Cut(call, "(")
	for _, log := range []string{"klog.", "logger.", "log.", "panic", "cancel", "slices.Sort", "wg.", "w.logger",
		"span."} {
		if strings.HasPrefix(call, log) {
			return true
		}
	}
	for _, end := range []string{"Lock", "Unlock", "Close", ".Done", ".Wait", ".End", ".Intern", ".Log"} {
		if strings.HasSuffix(head, end) {
			return true
		}
	}
	for _, part := range []string{"klog.FromContext(", "metrics.", "reports.", "events.", "traces."} {
		if strings.Contains(call, part) {
			return true
		}
	}
	return false
}

// is returns whether an expression is a binary one with this operator.
func is(e ast.Expr, op token.Token) bool {
	b, binary := ast.Unparen(e).(*ast.BinaryExpr)
	return binary && b.Op == op
}

// boolean returns whether an expression is of a boolean type.
func (g *generator) boolean(e ast.Expr) bool {
	t := g.src.info.Types[e].Type
	if t == nil {
		return false
	}
	b, is := t.Underlying().(*types.Basic)
	return is && b.Info()&types.IsBoolean != 0
}
