package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// stockList returns the entries of a list in testdata, with the names and defaults of the stock external-provisioner.
func stockList(t *testing.T, file string) map[string]string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("testdata", file)))(t)
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, _ := strings.Cut(line, " ")
		all[name] = value
	}
	return all
}

// flagTable returns the rows of the table of flags in docs/reference/external-provisioner.md, keyed by the flag as
// --NAME, or the feature gate as --feature-gates=NAME.
func flagTable(t *testing.T) map[string]string {
	t.Helper()
	root := must.Get(process.ModuleRoot())(t)
	page := must.Get(os.ReadFile(filepath.Join(root, "docs", "reference", "external-provisioner.md")))(t)
	_, section, found := strings.Cut(string(page), "\n## Flags\n")
	if !found {
		t.Fatal("docs/reference/external-provisioner.md has no section Flags")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	table := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \| (.*) \|$`).FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`(-[-\\w=]+)`").FindAllStringSubmatch(row[1], -1) {
			table[name[1]] = row[2]
		}
	}
	return table
}

// notTaken begins the row of a flag or gate that makes this program fail.
const notTaken = "not taken:"

// Each flag of the stock external-provisioner is either a flag of this program, or the table in
// docs/reference/external-provisioner.md gives the reason why not. Each has a row, which mentions a different
// default.
func TestStockFlags(t *testing.T) {
	o := must.Get(newOptions())(t)
	ours := map[string]*pflag.Flag{}
	for _, group := range app.Flags(o).FlagSets {
		group.VisitAll(func(f *pflag.Flag) { ours[f.Name] = f })
	}
	table, stock := flagTable(t), stockList(t, "stock-flags.txt")
	for name, value := range stock {
		row, documented := table["--"+name]
		f, taken := ours[name]
		switch {
		case !documented:
			t.Errorf("--%s has no row in docs/reference/external-provisioner.md", name)
		case taken == strings.HasPrefix(row, notTaken):
			t.Errorf("--%s: taken %v, and its row says: %s", name, taken, row)
		case taken && f.DefValue != value && !strings.Contains(row, "default"):
			t.Errorf("--%s is %q by default, %q in the stock sidecar, and its row does not say so: %s", name, f.DefValue,
				value, row)
		}
	}
	if len(stock) < 50 {
		t.Errorf("the list has %d flags", len(stock))
	}
}

// Each gate can be set either way, or its row in docs/reference/external-provisioner.md gives the reason why not.
func TestStockFeatureGates(t *testing.T) {
	table, stock := flagTable(t), stockList(t, "stock-gates.txt")
	for name, value := range stock {
		row, documented := table["--feature-gates="+name]
		if !documented {
			t.Errorf("the gate %s has no row in docs/reference/external-provisioner.md", name)
		}
		taken := true
		for _, setting := range []string{"true", "false"} {
			if _, err := parse(t, "--feature-gates="+name+"="+setting); err != nil {
				taken = false
				t.Logf("%s=%s: %v", name, setting, err)
			}
		}
		if documented && taken == strings.HasPrefix(row, notTaken) {
			t.Errorf("the gate %s: taken %v, and its row says: %s", name, taken, row)
		}
		o := must.Get(newOptions())(t)
		if is := o.gates.Enabled(featuregate.Feature(name)); is != (value == "true") && !strings.Contains(row, "default") {
			t.Errorf("the gate %s is %v by default, and its row does not say so: %s", name, is, row)
		}
	}
	if len(stock) < 5 {
		t.Errorf("the list has %d gates", len(stock))
	}
}
