//go:build unix

package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// row is one of a table of figures on the performance page: its first cell, and the figures of each cell beside it,
// which stand with " / " between them. A cell without figures is "–".
type row struct {
	name  string
	cells [][]value
}

// three are the figures in the columns csi-reclaimer, reference and unlimited.
func three(name string, figures ...string) row {
	r := row{name: name, cells: make([][]value, 3)}
	for _, figure := range figures {
		for i, of := range []func(string) value{ours, limited, unlimited} {
			r.cells[i] = append(r.cells[i], of(figure))
		}
	}
	return r
}

// withoutReference are the same where the reference was not measured.
func withoutReference(name string, figures ...string) row {
	r := three(name, figures...)
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
		three("DeleteVolume calls per volume, PV first / claim first", "delete_rpcs_per_volume_pv_first",
			"delete_rpcs_per_volume_claim_first"),
		three("writes of PVs per reclaim, PV first / claim first", "writes_per_reclaim_pv_first",
			"writes_per_reclaim_claim_first"),
		three("own calls per reclaim, PV first / claim first", "calls_per_reclaim_pv_first",
			"calls_per_reclaim_claim_first"),
		three("API calls of all clients for a claim, one of 500 / alone", "api_calls_per_claim",
			"api_calls_per_claim_alone"),
		three("claims bound per second", "claims_bound_per_second"),
		three("PVs gone per second, 500 volumes, PV first / claim first", "gone_per_second_pv_first",
			"gone_per_second_claim_first"),
		withoutReference("PVs gone per second, released beforehand, PV first / claim first",
			"released_pv_first_gone_per_second", "released_claim_first_gone_per_second"),
		three("processor time for 1,000 volumes, made and deleted, s", "subject_cpu_s_per_1000_live"),
		three("peak memory with 100,000 PVs, MiB", "peak_rss_mib_100000"),
		three("and with 50,000 claims, provisioning, MiB", "peak_rss_mib_100000_provisioning"),
		three("start to first deletion with 100,000 PVs, s", "start_to_first_decision_s_100000"),
		three("finalizers added to existing PVs per second (bare patches reach 501)", "backfill_per_second"),
		three("Released to DeleteVolume, p50 / p99, ms", "released_to_deleted_ms_p50", "released_to_deleted_ms_p99"),
		three("calls of the API server in 10 idle minutes", "idle_api_calls_10min"),

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
		"PVs gone per second, released beforehand, PV first":    "released_pv_first_gone_per_second",
		"PVs gone per second, released beforehand, claim first": "released_claim_first_gone_per_second",
		"processor time, released beforehand, claim first":      "subject_cpu_s_per_1000_released_claim_first",
		"PVs gone per second, released beforehand, slow driver": "released_slow_driver_gone_per_second",
		"Released to DeleteVolume, p99":                         "released_to_deleted_ms_p99",
		"peak memory with 100,000 PVs":                          "peak_rss_mib_100000",
		"memory at rest with 100,000 PVs":                       "steady_rss_mib_100000",
		"calls of the API server in 10 idle minutes":            "idle_api_calls_10min",
		"processor time at rest":                                "idle_cpu_percent",
		"writes of volume-guard per pod with a lock":            "locked_writes_per_pod",
	}
}

// TestMissedGoalsMatchReport expects each missed goal on the page, with its goal and its figure.
func TestMissedGoalsMatchReport(t *testing.T) {
	r := benchReport(t)
	want := map[string]report.Goal{}
	for _, figure := range r.all {
		for _, goal := range figure.Goals {
			if reached, _ := goal.Judge(figure.Medians()); !reached {
				want[figure.Name] = goal
			}
		}
	}
	first := regexp.MustCompile(`^` + number)
	for _, cells := range tableOf(t, "## Goals that are missed") {
		figure := missed()[cells[0]]
		goal, is := want[figure]
		delete(want, figure)
		if !is || len(cells) != 3 {
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
	for figure, goal := range want {
		t.Errorf("%s: %s misses its goal %s, and is not listed", performancePage, figure, goal)
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
