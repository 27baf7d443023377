package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// heaviest is how many bytes README.md may have.
const heaviest = 7 << 10

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
	must(t, err)
	return all
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	// dropped matches the characters that GitHub omits from the anchor of a heading.
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestLinksResolve follows the links within the repository, of each of its pages.
func TestLinksResolve(t *testing.T) {
	root := process.RootForTest(t)
	followed := 0
	for _, page := range markdown(t) {
		for _, found := range link.FindAllStringSubmatch(page.text, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			followed++
			target, anchor, _ := strings.Cut(found[1], "#")
			name := page.name
			if target != "" {
				name = path.Join(path.Dir(page.name), target)
			}
			file := filepath.Join(root, filepath.FromSlash(name))
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", page.name, err)
			} else if anchor != "" && !anchors(read(t, file))[anchor] {
				t.Errorf("%s: %s has no heading for #%s", page.name, name, anchor)
			}
		}
	}
	if followed < 50 {
		t.Errorf("only %d links were followed", followed)
	}
}

func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(page, -1) {
		all[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")] = true
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

// image matches a picture of a page: its alternative text and its file.
var image = regexp.MustCompile(`!\[([^]]*)\]\(([^)\s]+)\)`)

// TestPicturesReadWellOnAnyForge expects each picture to be a plain SVG file with an alternative text, because not
// every forge draws diagrams.
func TestPicturesReadWellOnAnyForge(t *testing.T) {
	shown := map[string]bool{}
	for _, page := range markdown(t) {
		for _, found := range image.FindAllStringSubmatch(page.text, -1) {
			said, file := found[1], found[2]
			if len(strings.Fields(said)) < 3 {
				t.Errorf("%s: the image %s says nothing to who cannot see it", page.name, file)
			}
			shown[path.Join(path.Dir(page.name), file)] = true
		}
		for line := range strings.Lines(page.text) {
			if language, is := strings.CutPrefix(strings.TrimSpace(line), "```"); is && language == "mermaid" {
				t.Errorf("%s has a diagram that not every forge draws", page.name)
			}
		}
	}
	root := process.RootForTest(t)
	drawn, err := filepath.Glob(filepath.Join(root, "docs", "pictures", "*"))
	must(t, err)
	for _, file := range drawn {
		if name := "docs/pictures/" + filepath.Base(file); !shown[name] {
			t.Errorf("no page shows %s", name)
		}
		if text := read(t, file); !strings.HasPrefix(text, "<svg ") || strings.Contains(text, "<script") {
			t.Errorf("%s is no plain SVG", filepath.Base(file))
		}
	}
	if len(drawn) < 5 {
		t.Errorf("%d pictures were found", len(drawn))
	}
}

func TestDocsQuoteExamples(t *testing.T) {
	root := process.RootForTest(t)
	for _, name := range []string{"pkg/reclaim/example_cloud_test.go", "pkg/reclaim/example_csidriver_test.go",
		"pkg/provision/example_test.go", "pkg/provision/example_cloud_test.go", "pkg/provision/example_fake_test.go",
		"pkg/provision/example_production_test.go"} {
		code := read(t, filepath.Join(root, filepath.FromSlash(name)))
		CheckPart(t, "how-to/embed.md", name, "```go\n"+code+"```\n")
	}
}
