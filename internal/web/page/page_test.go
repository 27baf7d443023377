package page

import (
	"bytes"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// all returns the page's files by path.
func all(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		file, ok := Get(name)
		if !ok || file.ContentType == "" || !utf8.Valid(file.Content) || bytes.ContainsRune(file.Content, '\r') {
			t.Errorf("%s: found %v, type %q", name, ok, file.ContentType)
		}
		found[name] = string(file.Content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestGet(t *testing.T) {
	index, ok := Get("")
	if named, _ := Get("index.html"); !ok || index.ContentType != "text/html; charset=utf-8" ||
		!bytes.Equal(index.Content, named.Content) {
		t.Errorf("the page's address has %q of type %q", index.Content, index.ContentType)
	}
	for _, name := range []string{"page.go", "app", "app/", "/index.html", "../page.go", "app/../index.html", "no.js"} {
		if _, ok := Get(name); ok {
			t.Errorf("there is a file %q", name)
		}
	}
}

// maxBytes limits the size of the page, which each program embeds.
const maxBytes = 144_000

func TestPageSize(t *testing.T) {
	total := 0
	for name, text := range all(t) {
		total += len(text)
		for i, line := range strings.Split(text, "\n") {
			if utf8.RuneCountInString(line) > 120 && !strings.Contains(line, "data:image/svg+xml") {
				t.Errorf("%s:%d: longer than 120 characters", name, i+1)
			}
		}
	}
	if total > maxBytes {
		t.Errorf("the page has %d bytes, more than %d", total, maxBytes)
	}
}

// Text from the cluster is never parsed as HTML or as a script, and the content security policy holds: the page has no
// inline script or style, and loads nothing from elsewhere.
func TestPageHasNoUnsafeMarkup(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		".js": regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|` +
			`DOMParser|srcdoc|\beval\b|new Function|setAttribute\("(style|on)|javascript:|https?://(?:[^w]|w[^w])`),
		".html": regexp.MustCompile(`\sstyle=|\son[a-z]+=|<style|<script(?: [a-z]+="[^"]*")*>[^<]|(?:src|href)="(?:https?:)?//`),
		".css":  regexp.MustCompile(`@import|url\(|expression\(`),
	}
	for name, text := range all(t) {
		if found := forbidden[path.Ext(name)].FindString(text); found != "" {
			t.Errorf("%s has %q", name, found)
		}
	}
}

var (
	imports = regexp.MustCompile(`(?m)^import .* from "([^"]+)";$`)
	linked  = regexp.MustCompile(`(?:src|href)="([a-z][^":]*)"`)
)

// Each module is imported by another one or by index.html, and each import exists.
func TestEachFileIsUsed(t *testing.T) {
	texts := all(t)
	used := map[string]bool{"index.html": true}
	for name, text := range texts {
		pattern, folder := imports, path.Dir(name)
		if name == "index.html" {
			pattern = linked
		}
		for _, match := range pattern.FindAllStringSubmatch(text, -1) {
			target := path.Join(folder, match[1])
			if used[target] = true; texts[target] == "" {
				t.Errorf("%s uses %s, which is not there", name, target)
			}
		}
		if path.Ext(name) == ".js" && !strings.HasPrefix(text, "// @ts-check\n// ") {
			t.Errorf("%s does not begin with what it is for", name)
		}
	}
	for name := range texts {
		if !used[name] {
			t.Errorf("%s is not used", name)
		}
	}
}
