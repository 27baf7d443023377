package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// reference is the flag reference of the docs: what --help says, as a page.
func reference(groups cliflag.NamedFlagSets) string {
	var page strings.Builder
	page.WriteString("# Flags of csi-reclaimer\n\nMade from the program itself (`make docs`); `csi-reclaimer --help` says the same.\n")
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
