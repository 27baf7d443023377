//go:build unix

package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// A dashboard as Grafana's schema has it, as far as ours uses that: no other field may be there, and each value has to
// be of the right type. make dashboard holds the file against the whole schema, which Grafana publishes for npm.
type (
	dashboardSchema struct {
		UID           string          `json:"uid"`
		Title         string          `json:"title"`
		Tags          []string        `json:"tags"`
		SchemaVersion int             `json:"schemaVersion"`
		Editable      bool            `json:"editable"`
		Refresh       string          `json:"refresh"`
		Time          timeSchema      `json:"time"`
		Timezone      string          `json:"timezone"`
		Templating    variablesSchema `json:"templating"`
		Annotations   listSchema      `json:"annotations"`
		Links         []struct{}      `json:"links"`
		Panels        []panelSchema   `json:"panels"`
	}
	timeSchema struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	listSchema struct {
		List []struct{} `json:"list"`
	}
	variablesSchema struct {
		List []variableSchema `json:"list"`
	}
	variableSchema struct {
		Name       string            `json:"name"`
		Label      string            `json:"label"`
		Type       string            `json:"type"`
		Datasource *datasourceSchema `json:"datasource"`
		Query      any               `json:"query"` // a text or an object
		IncludeAll bool              `json:"includeAll"`
		Multi      bool              `json:"multi"`
		AllValue   string            `json:"allValue"`
		Current    *optionSchema     `json:"current"`
		Refresh    int               `json:"refresh"`
		Hide       int               `json:"hide"`
	}
	optionSchema struct {
		Text  string `json:"text"`
		Value string `json:"value"`
	}
	datasourceSchema struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	panelSchema struct {
		ID          int               `json:"id"`
		Type        string            `json:"type"`
		Title       string            `json:"title"`
		Description string            `json:"description"`
		Datasource  *datasourceSchema `json:"datasource"`
		GridPos     placeSchema       `json:"gridPos"`
		FieldConfig *fieldsSchema     `json:"fieldConfig"`
		Options     *optionsSchema    `json:"options"`
		Targets     []targetSchema    `json:"targets"`
		Collapsed   *bool             `json:"collapsed"`
		Panels      []panelSchema     `json:"panels"`
	}
	placeSchema struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	fieldsSchema struct {
		Defaults struct {
			Unit string  `json:"unit"`
			Min  float64 `json:"min"`
		} `json:"defaults"`
		Overrides []struct{} `json:"overrides"`
	}
	optionsSchema struct {
		Legend struct {
			DisplayMode string   `json:"displayMode"`
			Placement   string   `json:"placement"`
			ShowLegend  *bool    `json:"showLegend"`
			Calcs       []string `json:"calcs"`
		} `json:"legend"`
		Tooltip struct {
			Mode string `json:"mode"`
			Sort string `json:"sort"`
		} `json:"tooltip"`
	}
	targetSchema struct {
		RefID        string           `json:"refId"`
		Expr         string           `json:"expr"`
		LegendFormat string           `json:"legendFormat"`
		Datasource   datasourceSchema `json:"datasource"`
	}
)

// againstSchema returns an error for an invalid dashboard.
func againstSchema(text []byte) error {
	var d dashboardSchema
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("something follows it: %w", err)
	}
	var all []error
	if d.SchemaVersion < 36 || d.UID == "" || d.Title == "" || d.Panels == nil {
		all = append(all, fmt.Errorf("schema %d, uid %q, title %q", d.SchemaVersion, d.UID, d.Title))
	}
	for _, v := range d.Templating.List {
		if !slices.Contains([]string{"datasource", "query"}, v.Type) || v.Name == "" || v.Refresh > 2 || v.Hide > 3 {
			all = append(all, fmt.Errorf("the variable %q of type %q", v.Name, v.Type))
		}
	}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		all = append(all, p.check(taken))
	}
	return errors.Join(all...)
}

// check returns an error for an invalid panel. taken are the occupied places on the grid of 24 columns.
func (p panelSchema) check(taken map[[2]int]string) error {
	var all []error
	report := func(what string) { all = append(all, fmt.Errorf("panel %d %q: %s", p.ID, p.Title, what)) }
	g := p.GridPos
	if g.W < 1 || g.H < 1 || g.X < 0 || g.Y < 0 || g.X+g.W > 24 {
		report("it is not on the grid")
	}
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			if other := taken[[2]int{x, y}]; other != "" {
				report("it lies over " + other)
			}
			taken[[2]int{x, y}] = p.Title
		}
	}
	switch o := p.Options; {
	case p.ID < 1 || p.Title == "":
		report("it has no id or title")
	case p.Type == "row":
		if p.Collapsed == nil || p.Panels == nil || p.Targets != nil || o != nil {
			report("it is no row")
		}
	case p.Type != "timeseries" || o == nil || p.FieldConfig == nil || p.FieldConfig.Overrides == nil:
		report("it is no time series")
	case !slices.Contains([]string{"list", "table"}, o.Legend.DisplayMode), o.Legend.ShowLegend == nil,
		!slices.Contains([]string{"bottom", "right"}, o.Legend.Placement), o.Legend.Calcs == nil:
		report("its legend is not complete")
	case !slices.Contains([]string{"single", "multi", "none"}, o.Tooltip.Mode),
		!slices.Contains([]string{"asc", "desc", "none"}, o.Tooltip.Sort):
		report("its tooltip is not complete")
	}
	for i, target := range p.Targets {
		if want := string(rune('A' + i)); target.RefID != want || target.Expr == "" || target.Datasource != *p.Datasource {
			report("its query " + target.RefID)
		}
	}
	return errors.Join(all...)
}

func TestDashboardMatchesSchema(t *testing.T) {
	if err := againstSchema(read(t, "dashboard", dashboardFile)); err != nil {
		t.Error(err)
	}
}

// TestInvalidDashboardIsDetected applies one invalid change at a time.
func TestInvalidDashboardIsDetected(t *testing.T) {
	text := string(read(t, "dashboard", dashboardFile))
	for name, change := range map[string][2]string{
		"an unknown field":   {`"title": `, `"titel": `},
		"a wrong type":       {`"schemaVersion": 39`, `"schemaVersion": "39"`},
		"an old schema":      {`"schemaVersion": 39`, `"schemaVersion": 16`},
		"an unknown panel":   {`"type": "timeseries"`, `"type": "graph"`},
		"an unknown legend":  {`"displayMode": "list"`, `"displayMode": "lists"`},
		"no legend":          {`"showLegend": true`, `"isVisible": true`},
		"a wide panel":       {`"w": 24`, `"w": 25`},
		"a panel over one":   {`"y": 1`, `"y": 0`},
		"an unknown tooltip": {`"mode": "multi"`, `"mode": "all"`},
		"another query":      {`"refId": "A"`, `"refId": "Z"`},
	} {
		changed := strings.Replace(text, change[0], change[1], 1)
		if changed == text {
			t.Errorf("%s: %s is not there", name, change[0])
		} else if againstSchema([]byte(changed)) == nil {
			t.Errorf("%s is not detected", name)
		}
	}
}
