// Package page has the files of the page that package web serves: index.html, style sheets, and JavaScript modules that
// run as they are, without a build. The page asks only for what is below its own address, so that it can be served
// below any prefix, under a strict content security policy.
//
// A module has one job. The folders: app is the frame around the views and what they share, list the tables, object the
// page of one object. The types that the modules read are those of internal/web/view.
package page

import (
	"embed"
	"path"
)

//go:embed index.html theme.js app/*.js list/*.js object/*.js style/*.css
var files embed.FS

// contentTypes are those of the page's files, by extension. The types that the machine knows are not asked: Windows
// calls JavaScript text/plain, and a browser does not run that.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
}

// File is one of the page's files.
type File struct {
	ContentType string
	Content     []byte
}

// Get returns the file at a path below the page's address, such as "app/main.js". The empty path is index.html. ok is
// false where there is none.
func Get(name string) (file File, ok bool) {
	if name == "" {
		name = "index.html"
	}
	content, err := files.ReadFile(name)
	if err != nil {
		return File{}, false
	}
	return File{ContentType: contentTypes[path.Ext(name)], Content: content}, true
}
