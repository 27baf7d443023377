package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// tree gathers the figures of a tree.
type tree struct {
	shipped, tests, markdown       figure
	long, complex                  figure
	folders, roles, mirrors, names figure
	queues                         figure
	comments, designs, docs        prose
	riddles, wide, pages           figure
	// packages are the folders of shipped code.
	packages map[string]*folder
}

// measure reads a tree and returns its figures in the order of the table.
func measure(root string) ([]*figure, error) {
	t := tree{
		shipped:  figure{name: "lines of shipped Go", most: 69_000, step: linesStep},
		tests:    figure{name: "lines of tests and their harness", most: 150_000, step: linesStep},
		markdown: figure{name: "lines of Markdown", noGoal: true, step: linesStep},
		long:     figure{name: "functions over 60 lines", step: countStep},
		complex:  figure{name: "functions of complexity over 15", step: countStep},
		folders:  figure{name: "folders with over 12 files", most: 6, step: countStep},
		roles:    figure{name: "role files in controllers, %", most: 45, step: ratioStep, scale: 100},
		mirrors:  figure{name: "structs that mirror API kinds", most: 20, step: countStep},
		queues:   figure{name: "packages with queues of client-go", most: 1, step: countStep},
		names:    figure{name: "public names", most: 850, step: countStep},
		comments: newProse("comments"),
		designs:  newProse("DESIGN.md"),
		docs:     newProse("docs"),
		riddles:  figure{name: "riddles in names of tests, %", most: 2, step: ratioStep, scale: 100},
		wide:     figure{name: "lines of Markdown over 100 columns", step: countStep},
		pages:    figure{name: "pages over 2500 words", step: countStep},
		packages: map[string]*folder{},
	}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped(name):
			return fs.SkipDir
		case entry.IsDir() || generated(name):
			return nil
		}
		return t.read(root, name)
	})
	if err != nil {
		return nil, err
	}
	t.closeFolders()
	all := []*figure{&t.shipped, &t.tests, &t.markdown, &t.long, &t.complex, &t.folders, &t.roles, &t.mirrors, &t.queues,
		&t.names}
	all = append(all, t.comments.figures()...)
	all = append(all, t.designs.figures()...)
	all = append(all, t.docs.figures()...)
	return append(all, &t.riddles, &t.wide, &t.pages), nil
}

// skipped reports whether a folder is hidden, as .build is, or has data or copies.
func skipped(folder string) bool {
	switch base := path.Base(folder); base {
	case "testdata", "vendor", "node_modules":
		return true
	default:
		return folder != "." && strings.HasPrefix(base, ".")
	}
}

// generated reports whether a program wrote a Go file.
func generated(name string) bool {
	return strings.HasPrefix(path.Base(name), "zz_") && strings.HasSuffix(name, ".go")
}

// read adds a file to the figures.
func (t *tree) read(root, name string) error {
	isGo, isTest := strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go")
	isShipped := isGo && !isTest && !strings.HasPrefix(name, "test/")
	if !isGo && !strings.HasSuffix(name, ".md") {
		return nil
	}
	text, err := os.ReadFile(path.Join(root, name))
	if err != nil {
		return err
	}
	lines := float64(bytes.Count(text, []byte("\n")))
	switch {
	case !isGo:
		t.markdown.add(name, lines, 0)
		t.readPage(name, string(text))
		return nil
	case isShipped:
		t.shipped.add(name, lines, 0)
		t.comments.add(name, comments(string(text)))
	default:
		t.tests.add(name, lines, 0)
	}
	if isTest {
		t.readTests(name, string(text))
		return nil
	}
	if err := t.readCode(name, text, isShipped); err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}
	return nil
}
