package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

var (
	// messageTable is a table of messages; its first column quotes them.
	messageTable = regexp.MustCompile(`(?m)^\| message \|.*\n\|.*\n((?:\|.*\n)+)`)
	// joined matches where a string of the sources continues in the next line.
	joined = regexp.MustCompile(`"\s*\+\s*"`)
)

// TestTroubleshootingNamesRealMessages finds each message of the page in the sources. A "…" stands for any text.
func TestTroubleshootingNamesRealMessages(t *testing.T) {
	root := process.RootForTest(t)
	sources, named := sourcesOf(t, root), 0
	page := read(t, filepath.Join(root, "docs", "how-to", "troubleshoot.md"))
	for _, table := range messageTable.FindAllStringSubmatch(page, -1) {
		for _, row := range strings.Split(strings.TrimSpace(table[1]), "\n") {
			cell := strings.Split(row, " | ")[0]
			for i, message := range strings.Split(cell, "`") {
				if i%2 == 0 {
					continue // between two messages
				}
				named++
				for _, part := range strings.Split(message, "…") {
					if !strings.Contains(sources, strings.TrimSpace(part)) {
						t.Errorf("%q: no source has %q", message, part)
					}
				}
			}
		}
	}
	if named < 30 {
		t.Errorf("the page names only %d messages", named)
	}
}

// sourcesOf returns the shipped Go sources as one text, in which no string is broken into lines.
func sourcesOf(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"cmd", "internal", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
				return err
			}
			text, err := os.ReadFile(file)
			all.Write(text)
			return err
		})
		must(t, err)
	}
	return strings.ReplaceAll(joined.ReplaceAllString(all.String(), ""), `\"`, `"`)
}
