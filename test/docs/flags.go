package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

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
