package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// since maps a kind that manifests need to the first Kubernetes version that serves it as v1.
var since = map[string]string{"MutatingAdmissionPolicy": "1.36", "ValidatingAdmissionPolicy": "1.30"}

// capability is how the code asks for a capability of a driver's controller.
var capability = regexp.MustCompile(`csi\.ControllerServiceCapability_RPC_([A-Z][A-Z_]+)\b`)

// TestCompatibilityAgreesWithTheCode compares each version and name on the page with its source in the repository.
func TestCompatibilityAgreesWithTheCode(t *testing.T) {
	root := process.RootForTest(t)
	page := read(t, filepath.Join(root, "docs", reference, "compatibility.md"))
	t.Run("Kubernetes", func(t *testing.T) { testTestedVersions(t, root, page) })
	t.Run("charts", func(t *testing.T) { testCharts(t, root, page) })
	t.Run("manifests", func(t *testing.T) { testPolicies(t, root, page) })
	t.Run("versions of csi-reclaimer", func(t *testing.T) { testUpgrades(t, root, page) })
	t.Run("capabilities", func(t *testing.T) { testCapabilities(t, root, page) })

	gomod := filepath.Join(root, "go.mod")
	client := strings.Split(required(t, gomod, "k8s.io/client-go"), ".")
	for _, want := range []string{
		"version " + strings.TrimPrefix(required(t, gomod, "github.com/container-storage-interface/spec"), "v") +
			" of the CSI specification",
		"Go " + required(t, gomod, "go") + " or newer", "those of Kubernetes 1." + client[1] + ".",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// testTestedVersions expects a row with a patch version and a time of testing for each control plane of the tests, and
// for no other. The Makefile lists the versions that are tested before a release.
func testTestedVersions(t *testing.T, root, page string) {
	var want, between []string
	for _, v := range controlplane.Versions() {
		gomod := filepath.Join(root, "test", "framework", "controlplane", string(v), "go.mod")
		release := required(t, gomod, "k8s.io/kubernetes")
		when := "each change"
		if !slices.Contains(controlplane.Edges(), v) {
			when = "before a release"
			between = append(between, string(v))
		}
		want = append(want, strings.TrimPrefix(string(v), "v")+" "+strings.TrimPrefix(release, "v")+" "+when)
	}
	var got []string
	for _, row := range rows(page, "Kubernetes") {
		if regexp.MustCompile(`^\d[\d.]*$`).MatchString(row[1]) {
			got = append(got, strings.Join(row[:3], " "))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page says %q, the control planes of the tests are %q", got, want)
	}
	if line := "\nVERSIONS ?= " + strings.Join(between, " ") + "\n"; !strings.Contains(
		read(t, filepath.Join(root, "Makefile")), line) {
		t.Errorf("the Makefile does not have %q", line)
	}
}

// testCharts compares the oldest Kubernetes on the page with the charts' requirement.
func testCharts(t *testing.T, root, page string) {
	for _, chart := range []string{"csi-reclaimer", "volume-guard"} {
		var is struct {
			KubeVersion string `json:"kubeVersion"`
		}
		text := read(t, filepath.Join(root, "deploy", "charts", chart, "Chart.yaml"))
		must(t, yaml.Unmarshal([]byte(text), &is))
		oldest := strings.TrimSuffix(strings.TrimPrefix(is.KubeVersion, ">="), ".0-0")
		table := rows(page, "Kubernetes")
		if install := table[len(table)-2]; !strings.HasPrefix(install[0], oldest+",") {
			t.Errorf("chart %s asks for Kubernetes %s, the page says that charts install on %s", chart, is.KubeVersion,
				install[0])
		}
	}
}

// testPolicies expects a row for each manifest with an admission policy, with the first version that serves its kind.
func testPolicies(t *testing.T, root, page string) {
	said := map[string]string{}
	for _, row := range rows(page, "feature") {
		said[strings.Trim(row[0], "`")] = row[1] + " " + row[2]
	}
	entries, err := os.ReadDir(filepath.Join(root, "deploy", "manifests"))
	must(t, err)
	policies := 0
	for _, entry := range entries {
		objects, err := manifests.Read(entry.Name())
		must(t, err)
		for _, o := range objects {
			from := since[o.GetKind()]
			if from == "" {
				continue
			}
			policies++
			if want := from + " " + o.GetKind(); said[entry.Name()] != want {
				t.Errorf("%s holds a %s: the page says %q, want %q", entry.Name(), o.GetKind(), said[entry.Name()], want)
			}
		}
	}
	if policies < 10 {
		t.Errorf("only %d policies were found", policies)
	}
}

// testUpgrades expects the table to have exactly the tests of upgrades, with the Kubernetes versions that they run on.
func testUpgrades(t *testing.T, root, page string) {
	want := map[string]string{}
	for _, pattern := range []string{"test/e2e/upgrade/*_test.go", "test/deploy/upgrade_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		must(t, err)
		for _, file := range files {
			for _, part := range strings.Split(read(t, file), "\nfunc ")[1:] {
				name := regexp.MustCompile(`^(Test\w+)\(t \*testing\.T\)`).FindStringSubmatch(part)
				if name == nil {
					continue
				}
				want[name[1]] = "1.30, 1.37"
				if strings.Contains(part, "fixture.OwnVersions") || strings.Contains(pattern, "deploy") {
					want[name[1]] = "1.37"
				}
			}
		}
	}
	if len(want) < 6 {
		t.Errorf("only %d tests of upgrades were found", len(want))
	}
	for _, row := range rows(page, "what") {
		for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row[1]+row[2], -1) {
			if want[name[1]] != row[3] {
				t.Errorf("the page says that %s runs on %s, it runs on %q", name[1], row[3], want[name[1]])
			}
			delete(want, name[1])
		}
	}
	for name := range want {
		t.Errorf("the page does not have %s", name)
	}
}

// testCapabilities expects the table to have exactly the capabilities of a driver's controller that the code asks for.
func testCapabilities(t *testing.T, root, page string) {
	asked := map[string]bool{}
	for _, folder := range []string{"cmd", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
				return err
			}
			for _, found := range capability.FindAllStringSubmatch(read(t, file), -1) {
				asked[found[1]] = true
			}
			return nil
		})
		must(t, err)
	}
	for _, row := range rows(page, "feature") {
		name := strings.Trim(row[2], "`")
		if row[2] != "`"+name+"`" || strings.ToUpper(name) != name {
			continue
		}
		if !asked[name] {
			t.Errorf("the page has %s, which the code does not ask for", name)
		}
		delete(asked, name)
	}
	for name := range asked {
		t.Errorf("the page does not have %s, which the code asks for", name)
	}
}

// rows returns the rows of the tables whose first column has this heading, of all tables for an empty one.
func rows(page, heading string) (all [][]string) {
	within, before := false, ""
	for text := range strings.Lines(page) {
		text = strings.TrimSpace(text)
		switch {
		case !strings.HasPrefix(text, "|"):
			within = false
		case strings.HasPrefix(text, "|--"):
			within = heading == "" || strings.HasPrefix(before, "| "+heading+" |")
		case within:
			var row []string
			for cell := range strings.SplitSeq(strings.Trim(text, "|"), "|") {
				row = append(row, strings.TrimSpace(cell))
			}
			all = append(all, row)
		}
		before = text
	}
	return all
}

// required returns the version that a go.mod requires of a module, or of go itself.
func required(t *testing.T, gomod, module string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` (\S+)`).FindStringSubmatch(read(t, gomod))
	if found == nil {
		t.Fatalf("%s requires no %s", gomod, module)
	}
	return found[1]
}
