//go:build unix

package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
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

// hasWhatIsPromised: each program serves every metric of its table and of the table of both, with its labels. A metric
// with a label has no sample before its first event; what cannot be caused here is listed.
func hasWhatIsPromised(t *testing.T, live map[string]served) {
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
