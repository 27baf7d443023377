// Package page holds the files of the page that package web serves: index.html, style sheets, and JavaScript modules
// that run without a build. The page only requests paths below its own address, so it can be served below any prefix,
// under a strict content security policy.
//
// Each module has one job. Folder app holds the frame around the views and their common code, list holds the tables,
// and object holds the page of one object. The modules read the types of internal/web/view.
package page

import (
	"embed"
	"path"
)

//go:embed index.html theme.js app/*.js list/*.js object/*.js style/*.css
var files embed.FS

// contentTypes holds the content types of the page's files, by extension. The machine's own types are not used,
// because Windows calls JavaScript text/plain, which a browser does not run.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
}

type File struct {
	ContentType string
	Content     []byte
}

// Get returns the file at a path below the page's address, such as "app/main.js", and index.html for an empty path. ok
// is false if the file does not exist.
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
