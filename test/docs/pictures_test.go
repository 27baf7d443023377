package docs

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

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
