package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

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
