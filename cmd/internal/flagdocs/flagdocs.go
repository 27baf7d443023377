// Package flagdocs keeps the flag references in the docs identical to the output of --help.
package flagdocs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/csi-reclaimer/csi-reclaimer/test/docs"
)

// Check is a test that the reference page of a program in docs/ matches the program's flags.
func Check(t *testing.T, program string, groups cliflag.NamedFlagSets) {
	t.Helper()
	docs.CheckPage(t, program+"-flags.md", reference(program, groups))
}

func reference(program string, groups cliflag.NamedFlagSets) string {
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
