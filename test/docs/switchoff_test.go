package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSwitchItOffReleasesOneController reads the sections that switch one controller off: the command releases all that
// its --controllers name, so with the list of the Deployment it would also end fences and the holds of other pods.
func TestSwitchItOffReleasesOneController(t *testing.T) {
	want := map[string][]string{
		"docs/how-to/pod-safety.md":         {"pod-safety", "single-node,pod-safety"},
		"docs/how-to/single-node.md":        {"single-node"},
		"docs/how-to/statefulset-claims.md": {"statefulset-claims"},
	}
	lists := regexp.MustCompile("`--controllers=([^`]*)`")
	found := 0
	for _, page := range markdown(t) {
		_, section, there := strings.Cut(page.text, "\n## Switch it off\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !there || !strings.Contains(section, "--release-finalizers") {
			continue
		}
		found++
		var named []string
		for _, list := range lists.FindAllStringSubmatch(section, -1) {
			named = append(named, list[1])
		}
		if !slices.Equal(named, want[page.name]) {
			t.Errorf("%s releases %q, want %q", page.name, named, want[page.name])
		}
		if words := strings.Join(strings.Fields(section), " "); strings.Contains(words, "among its `--controllers`") {
			t.Errorf("%s does not name the whole list", page.name)
		}
	}
	if found != len(want) {
		t.Errorf("%d pages release one controller, want %d", found, len(want))
	}
}
