//go:build unix

package bench

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/growth"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
)

func TestFamiliesAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range families() {
		for _, figure := range f.Figures {
			if seen[figure.Name] || figure.Unit == "" || figure.Load == "" {
				t.Errorf("figure %q of %s: named twice %v, unit %q, load %q", figure.Name, f.Name, seen[figure.Name], figure.Unit,
					figure.Load)
			}
			seen[figure.Name] = true
		}
		if !f.Uncosted && (!seen[session.SubjectCPU+f.Name] || !seen[session.ApiServerCPU+f.Name]) {
			t.Errorf("family %s: no processor time of the subject or of the API server", f.Name)
		}
	}
	if _, err := session.Choose(families(), []string{"no such figure"}); err == nil {
		t.Error("a figure that does not exist was found")
	}
	for name, want := range map[string]string{"gone_per_second_pv": "live", "scale_1000": "scale_1000"} {
		chosen, err := session.Choose(families(), []string{name})
		if err != nil || len(chosen) != 1 || chosen[0].Name != want {
			t.Errorf("%s: %v, %v", name, chosen, err)
		}
	}
}

// The goals are agreed: a change of one is a change of this table.
func TestGoalsOfFamilies(t *testing.T) {
	want := map[string]string{
		"released_pv_first_gone_per_second":           "≥ 1.10 × reference_unthrottled, ≥ 1.10 × reference_v13_unthrottled",
		"released_claim_first_gone_per_second":        "≥ 1.00 × reference_unthrottled, ≥ 1.00 × reference_v13_unthrottled",
		"gone_per_second_pv_first":                    "≥ 1.00 × reference_unthrottled, ≥ 1.00 × reference_v13_unthrottled",
		"gone_per_second_claim_first":                 "≥ 1.00 × reference_unthrottled, ≥ 1.00 × reference_v13_unthrottled",
		"claims_bound_per_second":                     "≥ 1.00 × reference_unthrottled, ≥ 1.00 × reference_v13_unthrottled",
		"backfill_per_second":                         "≥ 0.90 × limit",
		"subject_cpu_s_per_1000_live":                 "≤ 1.00 × reference_unthrottled, ≤ 1.00 × reference_v13_unthrottled",
		"subject_cpu_s_per_1000_released_pv_first":    "≤ 1.00 × reference_unthrottled, ≤ 1.00 × reference_v13_unthrottled",
		"subject_cpu_s_per_1000_released_claim_first": "≤ 1.00 × reference_unthrottled, ≤ 1.00 × reference_v13_unthrottled",
		"released_to_deleted_ms_p50":                  "≤ 8.00",
		"released_to_deleted_ms_p99":                  "≤ 1.00 × reference_unthrottled, ≤ 1.00 × reference_v13_unthrottled",
		"delete_rpcs_per_volume_pv_first":             "= 1.00",
		"delete_rpcs_per_volume_claim_first":          "= 1.00",
		"answered_404_per_reclaim":                    "= 0.00",
		"calls_per_reclaim_pv_first":                  "≤ 2.00",
		"calls_per_reclaim_claim_first":               "≤ 3.00",
		"api_calls_per_claim_alone":                   "≤ 10.5",
		"api_calls_per_claim_starting":                "≤ 10.5",
		"reclaim_per_second_100000":                   "≥ 1.00 × reference_unthrottled, ≥ 1.00 × reference_v13_unthrottled",
		"api_calls_per_claim":                         "≤ 10.5",
		"peak_rss_mib_100000":                         "≤ 110",
		"in_flight_bytes_per_volume_3":                "≤ 12800",
		"in_flight_bytes_per_volume_5000":             "≤ 12800",
		"pods_gone_per_second":                        "≥ 0.95 × limit",
		"pod_gone_ms_p50":                             "≤ 1.10 × limit",
		"locked_scheduled_per_second":                 "≥ 0.55 × limit",
		"locked_scheduled_ms_p50":                     "≤ 12.0",
	}
	got := map[string]string{}
	for _, f := range families() {
		for _, figure := range f.Figures {
			if want[figure.Name] == "" {
				continue
			}
			var all []string
			for _, goal := range figure.Goals {
				all = append(all, goal.String())
			}
			got[figure.Name] = strings.Join(all, ", ")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("goals (-want +got):\n%s", diff)
	}
}

func TestNamesMatchFamilies(t *testing.T) {
	var list strings.Builder
	List(&list)
	for _, name := range Names() {
		if !slices.Contains(strings.Split(list.String(), "\n"), "  "+name) {
			t.Errorf("%s is not listed", name)
		}
	}
}

// A simulation and families by hand are measured only by name, and each slope has a goal.
func TestGrowthFamilies(t *testing.T) {
	t.Parallel()
	for _, f := range families() {
		if f.ByHand != (f.Name == "outage" || f.Name == "many_pods") {
			t.Errorf("family %s: by hand %v", f.Name, f.ByHand)
		}
		for _, figure := range f.Figures {
			if strings.HasSuffix(figure.Name, growth.SlopeSuffix) != (len(figure.Goals) > 0) &&
				strings.HasPrefix(figure.Name, growth.GrowthPrefix) {
				t.Errorf("figure %s: goals %v", figure.Name, figure.Goals)
			}
		}
	}
	chosen, err := session.Choose(families(), []string{"growth"})
	if err != nil || len(chosen) != len(growth.Families()) {
		t.Errorf("%d families, want %d: %v", len(chosen), len(growth.Families()), err)
	}
}
