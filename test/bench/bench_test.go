//go:build unix

package bench

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

func TestFamiliesAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range families() {
		for _, figure := range f.figures {
			if seen[figure.Name] || figure.Unit == "" || figure.Load == "" {
				t.Errorf("figure %q of %s: named twice %v, unit %q, load %q", figure.Name, f.name, seen[figure.Name], figure.Unit,
					figure.Load)
			}
			seen[figure.Name] = true
		}
		if !f.uncosted && (!seen[subjectCPU+f.name] || !seen[apiServerCPU+f.name]) {
			t.Errorf("family %s: no processor time of the subject or of the API server", f.name)
		}
	}
	if _, err := choose([]string{"no such figure"}); err == nil {
		t.Error("a figure that does not exist was found")
	}
	for name, want := range map[string]string{"gone_per_second_pv": "live", "scale_1000": "scale_1000"} {
		if chosen, err := choose([]string{name}); err != nil || len(chosen) != 1 || chosen[0].name != want {
			t.Errorf("%s: %v, %v", name, chosen, err)
		}
	}
}

// The goals are agreed: a change of one is a change of this table.
func TestGoalsOfFamilies(t *testing.T) {
	want := map[string]string{
		"released_pv_first_gone_per_second":           "≥ 1.10 × reference_unthrottled",
		"released_claim_first_gone_per_second":        "≥ 1.00 × reference_unthrottled",
		"gone_per_second_pv_first":                    "≥ 1.00 × reference_unthrottled",
		"gone_per_second_claim_first":                 "≥ 1.00 × reference_unthrottled",
		"claims_bound_per_second":                     "≥ 1.00 × reference_unthrottled",
		"backfill_per_second":                         "≥ 0.90 × limit",
		"subject_cpu_s_per_1000_live":                 "≤ 1.00 × reference_unthrottled",
		"subject_cpu_s_per_1000_released_pv_first":    "≤ 1.00 × reference_unthrottled",
		"subject_cpu_s_per_1000_released_claim_first": "≤ 1.00 × reference_unthrottled",
		"released_to_deleted_ms_p50":                  "≤ 8.00",
		"released_to_deleted_ms_p99":                  "≤ 1.00 × reference_unthrottled",
		"delete_rpcs_per_volume_pv_first":             "= 1.00",
		"delete_rpcs_per_volume_claim_first":          "= 1.00",
		"answered_404_per_reclaim":                    "= 0.00",
		"calls_per_reclaim_pv_first":                  "≤ 2.00",
		"calls_per_reclaim_claim_first":               "≤ 3.00",
		"api_calls_per_claim":                         "≤ 10.3",
		"peak_rss_mib_100000":                         "≤ 116",
		"in_flight_bytes_per_volume_3":                "≤ 12800",
		"in_flight_bytes_per_volume_5000":             "≤ 12800",
	}
	got := map[string]string{}
	for _, f := range families() {
		for _, figure := range f.figures {
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

func TestFamilyWithMissingFiguresFails(t *testing.T) {
	figures := []report.Figure{{Name: "one"}, {Name: "other"}}
	for name, c := range map[string]struct {
		values map[string]float64
		ok     bool
	}{
		"every figure has a value": {map[string]float64{"one": 1, "other": 2}, true},
		"nothing has":              {nil, false},
		"one has none":             {map[string]float64{"one": 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{Options: Options{Progress: io.Discard}}
			_, err := s.figuresOf(t.Context(), family{figures: figures, run: func(context.Context, *session) error {
				for figure, value := range c.values {
					s.record(figure, report.Ours, value)
				}
				return nil
			}}, time.Time{}, 0)
			if (err == nil) != c.ok {
				t.Errorf("figuresOf: %v, want ok %v", err, c.ok)
			}
		})
	}
}

func TestAlternateRotates(t *testing.T) {
	s, order := &session{Options: Options{Runs: 3}}, ""
	add := func(letter string) func() error { return func() error { order += letter; return nil } }
	if err := s.alternate(func(int) []func() error {
		return []func() error{add("a"), add("b"), add("c")}
	}); err != nil || order != "abcbcacab" {
		t.Errorf("order %q, error %v", order, err)
	}
}

func TestTallyOfRequests(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	r := round{claims: claims{volumes: map[string]string{"data": "pv-1"}, began: at(1)}, deleted: at(100)}
	event := func(second int, user, verb, resource, name string, code int) controlplane.AuditEvent {
		return controlplane.AuditEvent{Received: at(second), User: user, Verb: verb, Resource: resource, Name: name,
			Code: code}
	}
	got := tallyOf([]controlplane.AuditEvent{
		event(2, "admin", "create", "persistentvolumeclaims", "", 201),
		event(3, "admin", "get", "configmaps", "marker-1", 404),
		event(3, "me", "list", "persistentvolumes", "", 200),
		event(3, "me", "watch", "persistentvolumes", "", 200),
		event(4, "me", "update", "leases", "disk-in-flight-0", 200),
		event(4, "me", "update", "leases", "disk", 200),
		event(5, "me", "get", "persistentvolumeclaims", "data", 200),
		event(5, "me", "create", "persistentvolumes", "", 201),
		event(5, "me", "create", "events", "", 201),
		event(6, "binder", "update", "persistentvolumeclaims", "data", 200),
		event(101, "admin", "delete", "persistentvolumeclaims", "data", 200),
		event(102, "binder", "update", "persistentvolumes", "pv-1", 200),
		event(103, "me", "get", "persistentvolumes", "pv-1", 200),
		event(103, "me", "get", "persistentvolumeclaims", "data", 404),
		event(104, "me", "delete", "persistentvolumes", "pv-1", 200),
		event(105, "me", "patch", "persistentvolumes", "pv-1", 404),
		event(106, "me", "patch", "persistentvolumes", "pv-of-another-round", 200),
		event(106, "me", "create", "events", "", 201),
		event(107, "me", "", "", "", 200),
	}, r, "me")
	want := tally{allBound: 6, allGone: 8, claimWrites: 2, reclaimCalls: 4, reclaimWrites: 2, missed: 1, kinds: got.kinds}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(tally{})); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
	if n := got.kinds["gone me get persistentvolumes "]; n != 1 {
		t.Errorf("reads of PVs: %d, want 1, of %v", n, got.kinds)
	}
}

func TestRunWithLostVolumesFails(t *testing.T) {
	call := func(volume, code string) ledger.Call { return ledger.Call{Volume: volume, Code: code} }
	for name, c := range map[string]struct {
		calls []ledger.Call
		ok    bool
	}{
		"each volume once":         {[]ledger.Call{call("a", "OK"), call("b", "OK")}, true},
		"one of them twice":        {[]ledger.Call{call("a", "OK"), call("a", "OK"), call("b", "OK")}, true},
		"one after a failure":      {[]ledger.Call{call("a", "OK"), call("b", "Internal"), call("b", "OK")}, true},
		"one not at all":           {[]ledger.Call{call("a", "OK")}, false},
		"one twice, the other not": {[]ledger.Call{call("a", "OK"), call("a", "OK")}, false},
		"one in vain":              {[]ledger.Call{call("a", "OK"), call("b", "Internal")}, false},
	} {
		if err := everyVolume(c.calls, 2); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok %v", name, err, c.ok)
		}
	}
}

// The API server ends a watch that it takes for slow, such as under load.
func TestPodsAreFollowedAfterTheirWatchEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, watches := fake.NewClientset(), 0
		client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		})
		client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			watches++
			w := watch.NewFakeWithChanSize(1, false)
			w.Delete(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName(watches), ResourceVersion: strconv.Itoa(1 + watches)}})
			w.Stop()
			return true, w, nil
		})
		nothing := func(context.Context) error { return nil }
		if _, err := follow(t.Context(), client, "pods", 3, isGone, nothing); err != nil || watches != 3 {
			t.Errorf("after %d watches: %v", watches, err)
		}
	})
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
