package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// widest is how many columns a line of prose may have, and heaviest how many bytes README.md.
const (
	widest   = 100
	heaviest = 7 << 10
)

// anyWidth are the folders and files with lines of any width.
var anyWidth = []string{"test/bench/report.md"}

// definition is a line that gives a link its target, as in "[name]: https://example.com".
var definition = regexp.MustCompile(`^\[[^]]+\]: \S+$`)

func TestLinesOfMarkdownAreShort(t *testing.T) {
	checked := 0
	for _, page := range markdown(t) {
		if slices.ContainsFunc(anyWidth, func(p string) bool {
			return page.name == p ||
				strings.HasPrefix(page.name, p+"/")
		}) {
			continue
		}
		checked++
		for _, l := range prose(page.text) {
			if width := utf8.RuneCountInString(l.text); width > widest && breakable(l.text) {
				t.Errorf("%s:%d has %d columns, want at most %d", page.name, l.number, width, widest)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d pages were checked", checked)
	}
}

func TestProseLines(t *testing.T) {
	const page = "# Title\n\ntext\n  - item\n| cell |\n  | cell |\n\n```go\ncode\n```\n    code\n\tcode\nend\n"
	want := []line{{1, "# Title"}, {2, ""}, {3, "text"}, {4, "  - item"}, {7, ""}, {13, "end"}}
	if got := prose(page); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for text, want := range map[string]bool{
		"two words": true, "- two words": true, "see [a](b) there": true, "[a b](c)": true,
		"[a](b),": false, "- [a](b)": false, "[a]: https://example.com": false, "word": false,
	} {
		if breakable(text) != want {
			t.Errorf("%q can be broken: %v, want %v", text, !want, want)
		}
	}
}

func TestREADMEIsShort(t *testing.T) {
	for _, page := range markdown(t) {
		if page.name == "README.md" && len(page.text) > heaviest {
			t.Errorf("README.md has %d bytes, want at most %d", len(page.text), heaviest)
		}
	}
}

// file is a Markdown file of the repository, with its name from the root, separated by slashes.
type file struct{ name, text string }

// markdown returns every Markdown file that the repository has.
func markdown(t *testing.T) (all []file) {
	t.Helper()
	root := process.RootForTest(t)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case filepath.Ext(name) == ".md":
			all = append(all, file{name, read(t, filepath.Join(root, filepath.FromSlash(name)))})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// breakable reports whether a line has a space to break it at.
func breakable(text string) bool {
	text = strings.TrimLeft(text, " -*")
	return strings.Contains(text, " ") && !definition.MatchString(text)
}

// line is one of a page; the first has number 1.
type line struct {
	number int
	text   string
}

// prose returns the lines of a page that are neither code nor of a table.
func prose(page string) (all []line) {
	fenced, number := false, 0
	for text := range strings.Lines(page) {
		number++
		text = strings.TrimRight(text, "\n")
		start := strings.TrimLeft(text, " ")
		switch {
		case strings.HasPrefix(start, "```"):
			fenced = !fenced
		case fenced, strings.HasPrefix(text, "    "), strings.HasPrefix(text, "\t"), strings.HasPrefix(start, "|"):
		default:
			all = append(all, line{number, text})
		}
	}
	return all
}
