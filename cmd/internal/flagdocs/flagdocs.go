// Package flagdocs keeps the flag references of the docs: what --help says, as a page.
package flagdocs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

var update = flag.Bool("update", false, "write the flag references in docs/")

// Check is a test of a program in cmd/: its reference in docs/ says what the program says. With -update
// the reference is written anew (make docs).
func Check(t *testing.T, program string, groups cliflag.NamedFlagSets) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", program+"-flags.md")
	want := page(program, groups)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the program says; run make docs", file)
	}
}

func page(program string, groups cliflag.NamedFlagSets) string {
	var page strings.Builder
	fmt.Fprintf(&page, "# Flags of %s\n\nMade from the program itself (`make docs`); `%s --help` says the same.\n", program, program)
	for _, name := range groups.Order {
		fmt.Fprintf(&page, "\n## %s\n\n| flag | default | what it does |\n|---|---|---|\n", name)
		groups.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Deprecated != "" {
				return
			}
			value := f.DefValue
			if value == "" {
				value = " "
			}
			usage := strings.ReplaceAll(strings.Join(strings.Fields(f.Usage), " "), "|", "\\|")
			fmt.Fprintf(&page, "| `--%s` | `%s` | %s |\n", f.Name, value, usage)
		})
	}
	return page.String()
}
