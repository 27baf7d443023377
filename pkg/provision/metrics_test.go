package provision

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

func TestLogMetrics(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	stats := inflight.Stats{Open: 1, Adding: 2, Removing: 3, Unreadable: 4, ReadOnly: 5, Elsewhere: 6, Fill: 0.7,
		Oldest: now.Add(-8 * time.Second), Writes: 9, Conflicts: 10}
	registry := prometheus.NewRegistry()
	m := newMetrics("disk", func() int64 { return 11 }, func() inflight.Stats { return stats },
		func() time.Time { return now })
	if err := m.register(registry); err != nil {
		t.Fatal(err)
	}
	gauges := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		served := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if metric.GetGauge() != nil && metric.GetLabel()[0].GetValue() == "disk" {
					served[family.GetName()] = metric.GetGauge().GetValue()
				}
			}
		}
		return served
	}
	want := map[string]float64{"provisions_in_progress": 11, "in_flight_entries": 1, "in_flight_oldest_seconds": 8,
		"in_flight_fill_ratio": 0.7, "in_flight_unreadable_entries": 4, "in_flight_unreadable_leases": 5,
		"in_flight_elsewhere_entries": 6}
	got := gauges()
	for name, value := range want {
		if got["csi_reclaimer_"+name] != value {
			t.Errorf("%s: %v, want %v", name, got["csi_reclaimer_"+name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d gauges, want %d: %v", len(got), len(want), got)
	}
	stats = inflight.Stats{}
	if age := gauges()["csi_reclaimer_in_flight_oldest_seconds"]; age != 0 {
		t.Errorf("an empty log has an entry that is %v seconds old", age)
	}
}
