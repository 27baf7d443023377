package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// The bounds of the linters funlen and cyclop in .golangci.yml.
const (
	longest = 60
	deepest = 15
)

// fullest is how many Go files a folder may have, tests apart.
const fullest = 12

// role matches the names of files that every controller has.
var role = regexp.MustCompile(
	`^(controller|config|execute|metrics|release|permissions|record|observer|changes|watch|cluster)\.go$`)

// mirror matches the names of structs that repeat an API kind. It goes by the name alone: it misses mirrors of other
// names, and takes each struct of such a name for a mirror.
var mirror = regexp.MustCompile(`(?i)^(pod|pvc|pv|(persistentvolume)?claim|persistentvolume|node|lease|` +
	`set|statefulset|namespace|fence|nodefence|attachment|volumeattachment)(facts|record)?$`)

// folder is one with shipped code.
type folder struct {
	files int
	// controller means that it imports internal/controller, and queue that it imports client-go's workqueue.
	controller, queue bool
	// roles and lines are the lines of its role files and of all its files, by file.
	roles, lines map[string]float64
}

// readCode adds a Go file that is no test.
func (t *tree) readCode(name string, text []byte, isShipped bool) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			if codeLines(files, f, text) > longest {
				t.long.add(name+":"+f.Name.Name, 1, 0)
			}
			if complexity(f) > deepest {
				t.complex.add(name+":"+f.Name.Name, 1, 0)
			}
		}
	}
	if !isShipped {
		return nil
	}
	t.addToFolder(name, file, bytes.Count(text, []byte("\n")))
	if !strings.HasPrefix(name, "internal/objects/") && !strings.HasPrefix(name, "pkg/apis/") {
		t.mirrors.add(name, float64(mirrors(file)), 0)
	}
	// Only packages that other modules import. The mock driver's packages are parts of a program.
	if strings.HasPrefix(name, "pkg/") && !strings.Contains(name, "/internal/") {
		t.names.add(name, float64(publicNames(file)), 0)
	}
	return nil
}

// addToFolder counts a file of shipped code. A package comment has no role.
func (t *tree) addToFolder(name string, file *ast.File, lines int) {
	dir, base := path.Split(name)
	dir = path.Clean(dir)
	f := t.packages[dir]
	if f == nil {
		f = &folder{roles: map[string]float64{}, lines: map[string]float64{}}
		t.packages[dir] = f
	}
	f.files++
	for _, i := range file.Imports {
		imported, _ := strconv.Unquote(i.Path.Value)
		f.controller = f.controller || strings.HasSuffix(imported, "/internal/controller")
		f.queue = f.queue || imported == "k8s.io/client-go/util/workqueue"
	}
	if base == "doc.go" {
		return
	}
	f.lines[name] = float64(lines)
	if role.MatchString(base) {
		f.roles[name] = float64(lines)
	}
}

// closeFolders adds the figures of whole folders. A controller is a folder directly in pkg, since its own subfolders
// may use the loop, too.
func (t *tree) closeFolders() {
	for dir, f := range t.packages {
		if f.files > fullest {
			t.folders.add(dir, 1, 0)
		}
		if f.queue {
			t.queues.add(dir, 1, 0)
		}
		if f.controller && path.Dir(dir) == "pkg" {
			for name, lines := range f.lines {
				t.roles.add(name, f.roles[name], lines)
			}
		}
	}
}

// codeLines returns the number of lines between the first and the last of a function that hold more than a comment.
func codeLines(files *token.FileSet, f *ast.FuncDecl, text []byte) (n int) {
	lines := bytes.Split(text[files.Position(f.Pos()).Offset:files.Position(f.End()).Offset], []byte("\n"))
	for _, line := range lines[1:max(1, len(lines)-1)] {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("//")) {
			n++
		}
	}
	return n
}

// complexity returns the cyclomatic complexity of a function, with its literals.
func complexity(f *ast.FuncDecl) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl, *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.CaseClause, *ast.CommClause:
			n++
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

func mirrors(file *ast.File) (n int) {
	ast.Inspect(file, func(node ast.Node) bool {
		if t, ok := node.(*ast.TypeSpec); ok {
			if _, isStruct := t.Type.(*ast.StructType); isStruct && mirror.MatchString(t.Name.Name) {
				n++
			}
		}
		return true
	})
	return n
}

// publicNames returns the number of exported functions, types, variables and constants, and of exported methods of
// exported types.
func publicNames(file *ast.File) (n int) {
	count := func(names ...*ast.Ident) {
		for _, name := range names {
			if name.IsExported() {
				n++
			}
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d)) {
				count(d.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					count(s.Name)
				case *ast.ValueSpec:
					count(s.Names...)
				}
			}
		}
	}
	return n
}

// receiver returns the name of the type of a method.
func receiver(d *ast.FuncDecl) string {
	for t := d.Recv.List[0].Type; ; {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
