//go:build unix

package deploy

import (
	"errors"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/terminal"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// promised is one metric of docs/reference/metrics.md.
type promised struct {
	name   string
	labels []string
}

// promises returns the tables of docs/reference/metrics.md by their heading.
func promises(t *testing.T) map[string][]promised {
	t.Helper()
	row := regexp.MustCompile("^\\| `([a-z_]+)` \\| [a-z]+ \\| (.*?) \\|")
	label := regexp.MustCompile("`([a-z_]+)`")
	all := map[string][]promised{}
	heading := ""
	for line := range strings.Lines(string(read(t, "..", "docs", "reference", "metrics.md"))) {
		if title, is := strings.CutPrefix(line, "## "); is {
			heading = strings.TrimSpace(title)
		}
		if found := row.FindStringSubmatch(line); found != nil {
			p := promised{name: found[1]}
			for _, l := range label.FindAllStringSubmatch(found[2], -1) {
				p.labels = append(p.labels, l[1])
			}
			all[heading] = append(all[heading], p)
		}
	}
	return all
}

// hasWhatIsPromised expects each program to serve every metric of its table and of the common table, with its labels. A
// metric with a label has no sample before its first event; metrics whose events cannot be caused here are listed.
func hasWhatIsPromised(t *testing.T, live map[string]page) {
	all := promises(t)
	both, found := all["Both"]
	if !found {
		t.Fatalf("docs/reference/metrics.md has no table of both programs: %v", all)
	}
	for program, there := range live {
		if len(all[program]) < 5 {
			t.Errorf("docs/reference/metrics.md has %d metrics of %s", len(all[program]), program)
		}
		for _, p := range slices.Concat(all[program], both) {
			labels, served := there.metric(p.name)
			if !served {
				t.Errorf("%s: %s is promised and not served", program, p.name)
			}
			for _, l := range p.labels {
				if served && !slices.Contains(labels, l) {
					t.Errorf("%s: %s is promised with label %s, and served with %q", program, p.name, l, labels)
				}
			}
		}
	}
}

// metric returns the labels of a metric, also of a histogram.
func (s served) metric(name string) (labels []string, found bool) {
	for _, sample := range []string{name, name + "_count"} {
		if labels, found = s[sample]; found {
			return labels, true
		}
	}
	return nil, false
}

// followsConventions expects promtool to accept each program's metrics, its own and the libraries'.
func followsConventions(t *testing.T, live map[string]page) {
	for program, there := range live {
		for metric, problems := range lint(t, there.text) {
			t.Errorf("%s: %s: %s", program, metric, strings.Join(problems, "; "))
		}
	}
}

// lint returns promtool's complaints about metrics, by name.
func lint(t *testing.T, text string) map[string][]string {
	t.Helper()
	suite.Deep(t, suite.Compiles)
	promtool, err := terminal.Promtool()
	must(t, err)
	check := exec.CommandContext(patiently(t), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	out, err := check.CombinedOutput()
	const hasProblems = 3
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != hasProblems) {
		t.Fatalf("%v\n%s", err, out)
	}
	found := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		metric, problem, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[metric] = append(found[metric], problem)
	}
	if (err == nil) != (len(found) == 0) {
		t.Fatalf("%v\n%s", err, out)
	}
	return found
}

// TestUnconventionalMetricsAreDetected checks that lint understands promtool's output.
func TestUnconventionalMetricsAreDetected(t *testing.T) {
	const text = "# HELP %s Help.\n# TYPE %s counter\n%s 1\n"
	if found := lint(t, strings.ReplaceAll(text, "%s", "csi_reclaimer_deletions_total")); len(found) > 0 {
		t.Errorf("a sound counter: %v", found)
	}
	found := lint(t, strings.ReplaceAll(text, "%s", "csi_reclaimer_deletions"))
	if names := slices.Collect(maps.Keys(found)); !slices.Equal(names, []string{"csi_reclaimer_deletions"}) {
		t.Errorf("a counter without the ending of one: %v", found)
	}
}
