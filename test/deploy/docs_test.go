//go:build unix

package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/process"
)

// commands returns the commands that a page of docs/ shows: what is indented by four.
func commands(t *testing.T, page string) (all [][]string) {
	t.Helper()
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^    (\w.*)$`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, strings.Fields(line[1]))
	}
	return all
}

// documented returns the arguments of the only command that docs/install.md begins so.
func documented(t *testing.T, begins string) []string {
	t.Helper()
	var found [][]string
	for _, command := range commands(t, "install.md") {
		if strings.HasPrefix(strings.Join(command, " "), begins+" ") {
			found = append(found, command[1:])
		}
	}
	if len(found) != 1 {
		t.Fatalf("docs/install.md has %d commands %q, want 1", len(found), begins)
	}
	return slices.Clip(found[0])
}

// TestTheGuideNamesTestsThatAreThere, one for each path.
func TestTheGuideNamesTestsThatAreThere(t *testing.T) {
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile(filepath.Join(root, "docs", "migrate.md"))
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	files, err := filepath.Glob(filepath.Join(root, "test", "e2e", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(guide), -1)
	for _, name := range named {
		if !strings.Contains(tests.String(), "\nfunc "+name[1]+"(") {
			t.Errorf("docs/migrate.md names %s, which is no test", name[1])
		}
	}
	if paths := regexp.MustCompile("(?m)^`Test\\w+`$").FindAllString(string(guide), -1); len(paths) != 4 {
		t.Errorf("docs/migrate.md has %d paths with a test", len(paths))
	}
}

// TestTheDocumentedCommandsNameWhatIsThere. Those of helm are run, by the test that installs the chart; what they
// apply by kubectl, TestEveryManifestIsAcceptedAsItIs applies; the images are built as their own test builds them.
func TestTheDocumentedCommandsNameWhatIsThere(t *testing.T) {
	named := 0
	images := stages(t)
	for _, command := range commands(t, "install.md") {
		for i, word := range command {
			if strings.HasPrefix(word, "deploy/") {
				named++
				if _, err := os.Stat(inDeploy(t, strings.TrimPrefix(word, "deploy/"))); err != nil {
					t.Errorf("%q: %v", command, err)
				}
			}
			if word == "--target" && images[command[i+1]] == nil {
				t.Errorf("%q: there is no such image", command)
			}
		}
		if !slices.Contains([]string{"docker", "helm", "kubectl"}, command[0]) {
			t.Errorf("%q: no test knows of it", command)
		}
	}
	if named < 8 {
		t.Errorf("%d files are named: this test shows nothing", named)
	}
}
