//go:build unix

package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// queries returns the dashboard's queries, by panel.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			Type    string `json:"type"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
		Templating struct {
			List []struct {
				Name  string `json:"name"`
				Query any    `json:"query"`
			} `json:"list"`
		} `json:"templating"`
	}
	must(t, json.Unmarshal(read(t, "dashboard", dashboardFile), &dashboard))
	all := map[string][]string{}
	ids := map[int]bool{}
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			all[panel.Title] = append(all[panel.Title], target.Expr)
		}
		if panel.Type != "row" && len(all[panel.Title]) == 0 {
			t.Errorf("the panel %q asks nothing", panel.Title)
		}
	}
	for _, variable := range dashboard.Templating.List {
		if query, is := variable.Query.(map[string]any); is {
			asked := regexp.MustCompile(`^label_values\((.*), \w+\)$`).FindStringSubmatch(fmt.Sprint(query["query"]))
			if asked == nil {
				t.Fatalf("the variable %s asks %v", variable.Name, query)
			}
			all["variable "+variable.Name] = []string{asked[1]}
		}
	}
	if len(all) < 15 {
		t.Fatalf("%d panels were found", len(all))
	}
	return all
}

// TestDashboardQueriesAreValid has promtool parse each query as the expression of a rule.
func TestDashboardQueriesAreValid(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for _, asked := range queries(t) {
		for _, query := range asked {
			query = strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*").Replace(query)
			fmt.Fprintf(&rules, "  - {record: a, labels: {n: %q}, expr: %q}\n", fmt.Sprint(rules.Len()), query)
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	must(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	if out, err := promtool(t, "check", "rules", "--lint=none", file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDashboardAndAlertsOnLiveScrape compares the programs' metrics with the dashboard, the alerts and the reference.
func TestDashboardAndAlertsOnLiveScrape(t *testing.T) {
	live := scrape(t)
	t.Run("has the metrics of the dashboard and the alerts", func(t *testing.T) { hasWhatIsQueried(t, live) })
	t.Run("has the metrics of docs/reference/metrics.md", func(t *testing.T) { hasWhatIsPromised(t, live) })
	t.Run("follows the conventions of Prometheus", func(t *testing.T) { followsConventions(t, live) })
}

// hasWhatIsQueried expects the programs to serve every metric that the dashboard or an alert names, with each label by
// which it selects or aggregates.
func hasWhatIsQueried(t *testing.T, live map[string]page) {
	there := served{}
	for _, program := range live {
		maps.Copy(there, program.served)
	}
	asked := queries(t)
	for _, a := range alerts(t) {
		asked["alert "+a.Alert] = []string{a.Expr}
	}
	used := map[string]bool{}
	for where, all := range asked {
		for _, query := range all {
			names, labels := named(query)
			if len(names) == 0 {
				t.Errorf("%s: %s names no metric", where, query)
			}
			var known []string
			for _, name := range names {
				if name == "up" { // Prometheus' own
					known = append(known, prometheusLabels()...)
					continue
				}
				if _, is := there[name]; !is {
					t.Errorf("%s: nobody has the metric %s", where, name)
				}
				known = append(known, there[name]...)
				used[name] = true
			}
			for _, label := range labels {
				if !slices.Contains(append(known, prometheusLabels()...), label) {
					t.Errorf("%s: %v has no label %s", where, names, label)
				}
			}
		}
	}
	// A metric that is shown nowhere is useless.
	for name := range there {
		name = strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")
		shown := used[name] || used[name+"_bucket"]
		if strings.HasPrefix(name, "csi_reclaimer_") && !shown && !strings.HasSuffix(name, "_reports_total") {
			t.Errorf("neither the dashboard nor an alert uses %s", name)
		}
	}
}

// prometheusLabels returns the labels that a scrape adds.
func prometheusLabels() []string { return []string{"namespace", "pod", "container", "job", "le"} }

var (
	inQuotes = regexp.MustCompile(`"[^"]*"`)
	matchers = regexp.MustCompile(`\{([^}]*)\}`)
	lists    = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	spans    = regexp.MustCompile(`\[[^\]]*\]|\boffset \w+`)
	word     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
)

// named returns the metrics and the labels that a query names.
func named(query string) (metrics, labels []string) {
	query = inQuotes.ReplaceAllString(query, "")
	take := func(shape *regexp.Regexp) {
		for _, found := range shape.FindAllStringSubmatch(query, -1) {
			labels = append(labels, regexp.MustCompile(`\w+`).FindAllString(found[1], -1)...)
		}
		query = shape.ReplaceAllString(query, " ")
	}
	take(matchers)
	take(lists)
	for _, found := range word.FindAllString(spans.ReplaceAllString(query, " "), -1) {
		name := strings.TrimSpace(found)
		if !strings.HasSuffix(name, "(") && !slices.Contains([]string{"and", "or", "unless", "sum", "max", "min"}, name) {
			metrics = append(metrics, name)
		}
	}
	return metrics, labels
}

func TestQueryParsing(t *testing.T) {
	for query, want := range map[string][2]string{
		`max by (a, b) (m{c=~"x|y", d="z"}) > 0`:                     {"m", "c d a b"},
		`sum by (a) (rate(m{c="n"}[5m])) / on (a) n offset 1h`:       {"m n", "c a a"},
		`(m and ignoring (p) n == 0) unless o`:                       {"m n o", "p"},
		`histogram_quantile(0.99, sum by (le) (rate(m_bucket[5m])))`: {"m_bucket", "le"},
		`vector(1) * 86400`:                                          {"", ""},
	} {
		metrics, labels := named(query)
		if got := [2]string{strings.Join(metrics, " "), strings.Join(labels, " ")}; got != want {
			t.Errorf("%s names %q, want %q", query, got, want)
		}
	}
}
