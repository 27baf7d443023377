//go:build unix

package docs

import (
	"encoding/json"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// The pages that quote figures of test/bench/report.json.
const (
	readmePage      = "README.md"
	performancePage = "docs/reference/performance.md"
	faqPage         = "docs/faq.md"
	scalePage       = "docs/reference/scale.md"
)

// value names a median of the report, and by how much a page divides it: 1000 for seconds of milliseconds.
type value struct {
	figure, column string
	by             float64
}

func ours(figure string) value      { return value{figure: figure, column: report.Ours} }
func limited(figure string) value   { return value{figure: figure, column: report.Reference} }
func unlimited(figure string) value { return value{figure: figure, column: report.Unthrottled} }
func limit(figure string) value     { return value{figure: figure, column: report.Limit} }

// v13 and v13Unlimited are of the library that external-provisioner 6.4 uses.
func v13(figure string) value          { return value{figure: figure, column: report.ReferenceV13} }
func v13Unlimited(figure string) value { return value{figure: figure, column: report.UnthrottledV13} }

func (v value) inSeconds() value { v.by = 1000; return v }

// quote is a place on a page: each @ in the text is a figure, a space is any space. It has to be on the page once.
type quote struct {
	page, text string
	values     []value
}

// TestFiguresMatchReport compares the figures of speed and size in README and docs with the benchmark's report.
func TestFiguresMatchReport(t *testing.T) {
	r := benchReport(t)
	pages := map[string]string{}
	for _, page := range markdown(t) {
		pages[page.name] = page.text
	}
	for _, q := range slices.Concat(proseQuotes(), rowQuotes()) {
		found := q.expression().FindAllStringSubmatch(pages[q.page], -1)
		if len(found) != 1 || len(found[0])-1 != len(q.values) {
			t.Errorf("%s: %d places for %q, want 1 with %d figures", q.page, len(found), q.text, len(q.values))
			continue
		}
		for i, v := range q.values {
			if want := r.median(t, v); !says(found[0][i+1], want) {
				t.Errorf("%s: %q says %s, and %s of %s is %g in report.json", q.page, q.text, found[0][i+1], v.figure, v.column,
					want)
			}
		}
	}
}

// number matches a figure on a page.
const number = `([0-9.]+)`

func (q quote) expression() *regexp.Regexp {
	text := regexp.QuoteMeta(q.text)
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "@", number)), `\s+`)
	if strings.HasPrefix(q.text, "|") {
		text += "\n" // the page has longer rows of that name
	}
	return regexp.MustCompile(text)
}

// says reports whether a number is the value, rounded to the digits that the number has.
func says(number string, value float64) bool {
	said, err := strconv.ParseFloat(number, 64)
	_, decimals, _ := strings.Cut(number, ".")
	return err == nil && math.Abs(said-value) <= 0.5*math.Pow10(-len(decimals))+1e-9
}

func TestRoundedFigures(t *testing.T) {
	for number, c := range map[string]struct {
		value float64
		want  bool
	}{
		"120": {120.15, true}, "116": {120.15, false}, "4.24": {4.2351, true}, "4.25": {4.2351, false}, "0.12": {0.115, true},
		"0": {0, true}, "1": {0, false}, "1.5.1": {1.5, false}, "9.5": {9.542, true},
	} {
		if says(number, c.value) != c.want {
			t.Errorf("%s says %g: %v, want %v", number, c.value, !c.want, c.want)
		}
	}
}

// proseQuotes are figures in sentences.
func proseQuotes() []quote {
	rpcsPV, rpcsClaim := "delete_rpcs_per_volume_pv_first", "delete_rpcs_per_volume_claim_first"
	return []quote{
		{readmePage, "[@ to @ calls](docs/faq.md#how-many-calls-does-a-volume-take) | @ call |",
			[]value{v13Unlimited(rpcsPV), v13Unlimited(rpcsClaim), ours(rpcsPV)}},
		{readmePage, "In the benchmark it peaks at @ MiB with 100,000 PVs, where the library of external-provisioner " +
			"(v13) takes @ MiB.", []value{ours("peak_rss_mib_100000"), v13("peak_rss_mib_100000")}},
		{faqPage, "calls it @ times (PV first) and @ times (claim first). At its defaults, with 5 API calls a second, it " +
			"calls it @ and @ times.",
			[]value{v13Unlimited(rpcsPV), v13Unlimited(rpcsClaim), v13(rpcsPV), v13(rpcsClaim)}},
		{faqPage, "It binds @ claims a second, and the library at its defaults binds @. ",
			[]value{ours("claims_bound_per_second"), v13("claims_bound_per_second")}},
		{faqPage, "@ claims a second are bound then.", []value{v13Unlimited("claims_bound_per_second")}},
		{faqPage, "With 100,000 PVs in the cluster it reclaims a burst at @ PVs a second, and the library at @. ",
			[]value{ours("reclaim_per_second_100000"), v13Unlimited("reclaim_per_second_100000")}},
		{faqPage, "to `DeleteVolume` is @ ms (p99) in place of @ ms.",
			[]value{ours("released_to_deleted_ms_p99"), v13Unlimited("released_to_deleted_ms_p99")}},
		{faqPage, "With 100,000 PVs it peaks at @ MiB, and at @ MiB if",
			[]value{ours("peak_rss_mib_100000"), ours("peak_rss_mib_100000_provisioning")}},
		{faqPage, "The library takes @ and @ MiB.",
			[]value{v13("peak_rss_mib_100000"), v13("peak_rss_mib_100000_provisioning")}},
		{performancePage, "Of the @ MiB that a process with 100,000 PVs rests at", []value{ours("steady_rss_mib_100000")}},
		{performancePage, "(bare patches reach @)", []value{limit("backfill_per_second")}},
		{scalePage, "| API calls of all clients until a claim is bound | @ |", []value{ours("api_calls_per_claim")}},
		{scalePage, "| own calls to delete a volume, PV first / claim first | @ / @ |",
			[]value{ours("calls_per_reclaim_pv_first"), ours("calls_per_reclaim_claim_first")}},
		{scalePage, "| own processor time for 1,000 volumes, made and deleted | @ s |",
			[]value{ours("subject_cpu_s_per_1000_live")}},
		{scalePage, "| processor time of the API server for them, with all clients | @ s |",
			[]value{ours("apiserver_cpu_s_per_1000_live")}},
		{scalePage, "| 10,000 | @ | – |", []value{ours("peak_rss_mib_10000")}},
		{scalePage, "| 50,000 | @ | – |", []value{ours("peak_rss_mib_50000")}},
		{scalePage, "peaked at @ MiB beside 100,000 held pods", []value{ours("many_pods_start_peak_mib")}},
		{scalePage, "| 100 | @ | @ | @ |", []value{ours("growth_attach_ms_100"), ours("growth_attach_ms_1000"),
			ours("growth_attach_ms_10000")}},
		{scalePage, "| 10 | @ | @ | @ |", []value{ours("growth_attach_small_ms_100"),
			ours("growth_attach_small_ms_1000"), ours("growth_attach_small_ms_10000")}},
		{scalePage, "| 100,000 | @ | @ |",
			[]value{ours("peak_rss_mib_100000"), ours("peak_rss_mib_100000_provisioning")}},
	}
}

// TestProseFiguresAreChecked finds numbers with a unit that proseQuotes does not cover.
func TestProseFiguresAreChecked(t *testing.T) {
	figure := regexp.MustCompile(`[0-9][0-9.,]*\s+(MiB|ms|×|times|calls|claims a second|PVs a\s+second)`)
	loads := regexp.MustCompile(`5 (API )?calls\s+a\s+second`)
	for _, page := range markdown(t) {
		if page.name != readmePage && page.name != faqPage {
			continue
		}
		text := page.text
		for _, q := range proseQuotes() {
			if q.page == page.name {
				text = q.expression().ReplaceAllString(text, "")
			}
		}
		for _, found := range figure.FindAllString(loads.ReplaceAllString(text, ""), -1) {
			t.Errorf("%s: no quote of this test holds %q against report.json", page.name, found)
		}
	}
}

// measured is the report with its figures by name.
type measured struct {
	all    []*report.Figure
	byName map[string]*report.Figure
}

func benchReport(t *testing.T) measured {
	t.Helper()
	var r report.Report
	must(t, json.Unmarshal([]byte(read(t, filepath.Join(process.RootForTest(t), "test", "bench", "report.json"))), &r))
	m := measured{all: r.Figures, byName: map[string]*report.Figure{}}
	for _, f := range r.Figures {
		m.byName[f.Name] = f
	}
	return m
}

func (m measured) median(t *testing.T, v value) float64 {
	t.Helper()
	figure := m.byName[v.figure]
	if figure == nil || len(figure.Runs[v.column]) == 0 {
		t.Fatalf("report.json has no %s of %s", v.figure, v.column)
	}
	median := report.Median(figure.Runs[v.column])
	if v.by > 0 {
		median /= v.by
	}
	return median
}

// row is one of a table of figures on the performance page: its first cell, and the figures of each cell beside it,
// which stand with " / " between them. A cell without figures is "–".
type row struct {
	name  string
	cells [][]value
}

// compared are the figures in the columns csi-reclaimer, reference, unlimited, and unlimited with v13.
func compared(name string, figures ...string) row {
	r := row{name: name, cells: make([][]value, 4)}
	for _, figure := range figures {
		for i, of := range []func(string) value{ours, limited, unlimited, v13Unlimited} {
			r.cells[i] = append(r.cells[i], of(figure))
		}
	}
	return r
}

// withoutReference are the same where the reference was not measured.
func withoutReference(name string, figures ...string) row {
	r := compared(name, figures...)
	r.cells[1] = nil
	return r
}

// beside are figures with a feature, and without it.
func beside(name string, figures ...string) row {
	r := row{name: name, cells: make([][]value, 2)}
	for _, figure := range figures {
		r.cells[0], r.cells[1] = append(r.cells[0], ours(figure)), append(r.cells[1], limit(figure))
	}
	return r
}

// locks are figures with locks, in a namespace without labels, and without volume-guard.
func locks(name string, seconds bool, figures ...string) row {
	r := row{name: name, cells: make([][]value, 3)}
	for _, figure := range figures {
		for i, v := range []value{ours("locked_" + figure), ours("unlabelled_" + figure), limit("locked_" + figure)} {
			if seconds {
				v = v.inSeconds()
			}
			r.cells[i] = append(r.cells[i], v)
		}
	}
	return r
}

func performanceRows() []row {
	return []row{
		compared("DeleteVolume calls per volume, PV first / claim first", "delete_rpcs_per_volume_pv_first",
			"delete_rpcs_per_volume_claim_first"),
		compared("writes of PVs per reclaim, PV first / claim first", "writes_per_reclaim_pv_first",
			"writes_per_reclaim_claim_first"),
		compared("own calls per reclaim, PV first / claim first", "calls_per_reclaim_pv_first",
			"calls_per_reclaim_claim_first"),
		compared("API calls of all clients for a claim, one of 500 / alone", "api_calls_per_claim",
			"api_calls_per_claim_alone"),
		withoutReference("API calls of all clients for a claim made at the start", "api_calls_per_claim_starting"),
		compared("claims bound per second", "claims_bound_per_second"),
		compared("PVs gone per second, 500 volumes, PV first / claim first", "gone_per_second_pv_first",
			"gone_per_second_claim_first"),
		withoutReference("PVs gone per second, released beforehand, PV first / claim first",
			"released_pv_first_gone_per_second", "released_claim_first_gone_per_second"),
		compared("processor time for 1,000 volumes, made and deleted, s", "subject_cpu_s_per_1000_live"),
		compared("peak memory with 100,000 PVs, MiB", "peak_rss_mib_100000"),
		compared("and with 50,000 claims, provisioning, MiB", "peak_rss_mib_100000_provisioning"),
		compared("start to first deletion with 100,000 PVs, s", "start_to_first_decision_s_100000"),
		compared("finalizers added to existing PVs per second (bare patches reach 1082)", "backfill_per_second"),
		compared("Released to DeleteVolume, p50 / p99, ms", "released_to_deleted_ms_p50", "released_to_deleted_ms_p99"),
		compared("calls of the API server in 10 idle minutes", "idle_api_calls_10min"),

		beside("pods running per second, 1,000 at once", "pods_running_per_second"),
		beside("pods gone per second, 1,000 at once", "pods_gone_per_second"),
		beside("from the DELETE of a pod to its end, p50 / p99, ms", "pod_gone_ms_p50", "pod_gone_ms_p99"),
		beside("calls of volume-guard per pod, of these writes", "calls_per_pod", "writes_per_pod"),

		locks("one at a time, p50 / p99, ms", false, "scheduled_ms_p50", "scheduled_ms_p99"),
		locks("1,000 at once, p50 / p99, s", true, "scheduled_at_once_ms_p50", "scheduled_at_once_ms_p99"),
		locks("pods scheduled per second, 1,000 at once", false, "scheduled_per_second"),
		{name: "calls of volume-guard per pod, of these writes", cells: [][]value{
			{ours("locked_calls_per_pod"), ours("locked_writes_per_pod")},
			// Without calls no writes exist.
			{ours("unlabelled_calls_per_pod"), ours("unlabelled_calls_per_pod")}, nil}},
		{name: "lists of the namespace's pods per pod", cells: [][]value{{ours("locked_lists_per_pod")}, nil, nil}},
	}
}

// rowQuotes are the rows as quotes.
func rowQuotes() (all []quote) {
	for _, r := range performanceRows() {
		q := quote{page: performancePage, text: "| " + r.name + " |"}
		for _, cell := range r.cells {
			if len(cell) == 0 {
				q.text += " – |"
				continue
			}
			q.text += " @" + strings.Repeat(" / @", len(cell)-1) + " |"
			q.values = append(q.values, cell...)
		}
		all = append(all, q)
	}
	return all
}

// TestFigureRowsAreChecked expects an entry in performanceRows for each row of the page.
func TestFigureRowsAreChecked(t *testing.T) {
	known := map[string]bool{}
	for _, r := range performanceRows() {
		known[r.name] = true
	}
	for _, name := range firstCells(t, "## Figures") {
		if !known[name] {
			t.Errorf("%s: the row %q is not held against report.json", performancePage, name)
		}
	}
}

// missed returns the figures whose goals the page lists as missed, by their names on the page.
func missed() map[string]string {
	return map[string]string{
		"API calls of all clients for a claim, one of 500":            "api_calls_per_claim",
		"API calls of all clients for a claim, alone":                 "api_calls_per_claim_alone",
		"API calls of all clients for a claim made at the start":      "api_calls_per_claim_starting",
		"claims bound per second":                                     "claims_bound_per_second",
		"PVs gone per second, 500 volumes, PV first":                  "gone_per_second_pv_first",
		"PVs gone per second, 500 volumes, claim first":               "gone_per_second_claim_first",
		"processor time, made and deleted":                            "subject_cpu_s_per_1000_live",
		"PVs gone per second, released beforehand, PV first":          "released_pv_first_gone_per_second",
		"PVs gone per second, released beforehand, claim first":       "released_claim_first_gone_per_second",
		"processor time, released beforehand, claim first":            "subject_cpu_s_per_1000_released_claim_first",
		"Released to DeleteVolume, p99":                               "released_to_deleted_ms_p99",
		"processor time, released beforehand, PV first":               "subject_cpu_s_per_1000_released_pv_first",
		"reclaims per second in a burst, with 100,000 PVs":            "reclaim_per_second_100000",
		"memory at rest with 100,000 PVs":                             "steady_rss_mib_100000",
		"peak memory with 100,000 PVs":                                "peak_rss_mib_100000",
		"calls of the API server in 10 idle minutes":                  "idle_api_calls_10min",
		"processor time while idle":                                   "idle_cpu_percent",
		"pods gone per second, 1,000 at once":                         "pods_gone_per_second",
		"from the DELETE of a pod to its end, p50":                    "pod_gone_ms_p50",
		"pods scheduled per second with locks":                        "locked_scheduled_per_second",
		"a pod alone with locks, p50":                                 "locked_scheduled_ms_p50",
		"writes of volume-guard per pod with a lock":                  "locked_writes_per_pod",
		"bytes of the in-flight log for a volume, 5,000 segments":     "in_flight_bytes_per_volume_5000",
		"a VolumeAttachment, 1,000 locked volumes more":               "growth_attach_ms_slope",
		"a VolumeAttachment, 1,000 locked volumes more, 10 in a lock": "growth_attach_small_ms_slope",
		"a pod alone, 1,000 pods more in its namespace":               "growth_lone_pod_list_kib_slope",
		"finalizers added to existing PVs per second":                 "backfill_per_second",
	}
}

// column returns the column of the report that a goal on the page names.
func column(goal string) string {
	for name, column := range map[string]string{"× unlimited": report.Unthrottled, "× v13": report.UnthrottledV13,
		"× not held": report.Limit, "× without": report.Limit, "× bare PATCHes": report.Limit} {
		if strings.HasSuffix(goal, name) {
			return column
		}
	}
	return ""
}

// TestMissedGoalsMatchReport expects each missed goal on the page, with its goal, its figure, and a reason.
func TestMissedGoalsMatchReport(t *testing.T) {
	r := benchReport(t)
	type miss struct{ figure, than string }
	want := map[miss]report.Goal{}
	for _, figure := range r.all {
		for _, goal := range figure.Goals {
			if reached, _ := goal.Judge(figure.Medians()); !reached {
				want[miss{figure.Name, goal.Than}] = goal
			}
		}
	}
	first := regexp.MustCompile(`^` + number)
	for _, cells := range tableOf(t, "## Goals that are missed") {
		of := miss{missed()[cells[0]], column(cells[1])}
		figure := of.figure
		goal, is := want[of]
		delete(want, of)
		if !is || len(cells) != 4 || cells[3] == "" {
			t.Errorf("%s: %q: no missed goal of report.json", performancePage, cells)
			continue
		}
		got := r.median(t, ours(figure))
		if goal.Than != "" {
			got /= r.median(t, value{figure: figure, column: goal.Than})
		}
		for i, value := range []float64{goal.Value, got} {
			if said := first.FindString(cells[i+1]); !says(said, value) {
				t.Errorf("%s: %s: says %s, and report.json %g", performancePage, cells[0], cells[i+1], value)
			}
		}
		if strings.Contains(cells[1], "×") != (goal.Than != "") || strings.Contains(cells[2], "×") != (goal.Than != "") {
			t.Errorf("%s: %s: %q and %q, and the goal is %s", performancePage, cells[0], cells[1], cells[2], goal)
		}
	}
	for of, goal := range want {
		t.Errorf("%s: %s misses its goal %s, and is not listed", performancePage, of.figure, goal)
	}
}

func firstCells(t *testing.T, heading string) (all []string) {
	t.Helper()
	for _, cells := range tableOf(t, heading) {
		if cells[0] != "" {
			all = append(all, cells[0])
		}
	}
	return all
}

// tableOf returns the rows of all tables below a heading of the performance page, without their headings.
func tableOf(t *testing.T, heading string) [][]string {
	t.Helper()
	page := read(t, filepath.Join(process.RootForTest(t), filepath.FromSlash(performancePage)))
	_, section, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", performancePage, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	all := rows(section, "")
	if len(all) < 5 {
		t.Fatalf("%q has %d rows", heading, len(all))
	}
	return all
}
