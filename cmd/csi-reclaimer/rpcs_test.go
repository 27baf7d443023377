package main

import (
	"testing"
	"time"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// Only calls of a driver that replaces an in-tree plugin have the label.
func TestMigratedLabel(t *testing.T) {
	for driver, want := range map[string]bool{"ebs.csi.aws.com": true, "disk.csi.example.com": false} {
		m := newRPCMetrics()
		m.RecordMetrics("/csi.v1.Identity/GetPluginInfo", nil, time.Second)
		m.SetDriverName(driver)
		if m.HaveAdditionalLabel(csimetrics.LabelMigrated) != want {
			t.Errorf("%s: has the label %v", driver, !want)
		}
		var calls csimetrics.CSIMetricsManager = m
		if want {
			var err error
			if calls, err = m.WithLabelValues(map[string]string{csimetrics.LabelMigrated: "true"}); err != nil {
				t.Fatal(err)
			}
		}
		calls.RecordMetrics("/csi.v1.Controller/DeleteVolume", nil, time.Second)
		families := must.Get(m.Gather())(t)
		deletions := 0
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				labels := map[string]string{}
				for _, l := range metric.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if labels["method_name"] != "/csi.v1.Controller/DeleteVolume" {
					continue
				}
				deletions++
				_, has := labels["migrated"]
				if labels["driver_name"] != driver || has != want {
					t.Errorf("%s: %v", driver, labels)
				}
			}
		}
		if deletions != 1 {
			t.Errorf("%s: %d calls were measured", driver, deletions)
		}
	}
}
