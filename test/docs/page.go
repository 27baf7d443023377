// Package docs keeps the generated parts of docs/ current: a test compares a page with its wanted content, and writes
// it with -update (make docs).
package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/csi-reclaimer/csi-reclaimer/test/docs/picture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// reference is the folder of docs/ in which whole pages are generated.
const reference = "reference"

var update = flag.Bool("update", false, "write what is generated in docs/")

// CheckPage has the test fail unless docs/reference/NAME is the text.
func CheckPage(t *testing.T, name, text string) {
	t.Helper()
	check(t, reference+"/"+name, func(string) string { return text })
}

// CheckPart has the test fail unless the part of docs/NAME, such as how-to/embed.md, between the two comments with
// this word is the text.
func CheckPart(t *testing.T, name, word, text string) {
	t.Helper()
	begins, ends := "<!-- generated: "+word+" -->\n", "<!-- end of "+word+" -->"
	check(t, name, func(page string) string {
		before, rest, found := strings.Cut(page, begins)
		_, after, foundEnd := strings.Cut(rest, ends)
		if !found || !foundEnd {
			t.Fatalf("docs/%s has no part %q", name, word)
		}
		return before + begins + "\n" + text + "\n" + ends + after
	})
}

// CheckPicture has the test fail unless the picture docs/pictures/NAME.svg is this one, and is sound.
func CheckPicture(t *testing.T, name string, drawn *picture.Sequence) {
	t.Helper()
	for _, problem := range drawn.Check() {
		t.Errorf("docs/pictures/%s.svg: %s", name, problem)
	}
	check(t, "pictures/"+name+".svg", func(string) string { return drawn.SVG() })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, name string, want func(page string) string) {
	t.Helper()
	file := filepath.Join(process.RootForTest(t), "docs", filepath.FromSlash(name))
	got, err := os.ReadFile(file)
	if !os.IsNotExist(err) {
		must(t, err)
	}
	text := want(string(got))
	if text == string(got) {
		return
	}
	if !*update {
		t.Errorf("docs/%s is not what the code says; run make docs", name)
		return
	}
	must(t, os.WriteFile(file, []byte(text), 0o644))
}

// CheckFlags has the test fail unless the reference page of a program matches its flags.
func CheckFlags(t *testing.T, program string, groups cliflag.NamedFlagSets) {
	t.Helper()
	CheckPage(t, program+"-flags.md", flagTables(program, groups))
}

// flagTables returns a page with a table of each group of flags.
func flagTables(program string, groups cliflag.NamedFlagSets) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# Flags of %s\n\nGenerated from the program by `make docs`. `%s --help` shows them, too.\n",
		program, program)
	for _, name := range groups.Order {
		fmt.Fprintf(&text, "\n## %s\n\n| flag | default | meaning |\n|---|---|---|\n", name)
		groups.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Deprecated != "" {
				return
			}
			value := f.DefValue
			if value == "" {
				value = " "
			}
			usage := strings.ReplaceAll(strings.Join(strings.Fields(f.Usage), " "), "|", "\\|")
			fmt.Fprintf(&text, "| `--%s` | `%s` | %s |\n", f.Name, value, usage)
		})
	}
	return text.String()
}
