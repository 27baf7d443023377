//go:build unix

// Package clustertest checks that the outcomes of scenarios are judged.
package clustertest

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage/stagetest"
)

// Judged checks that each wrong outcome of an act is noticed.
func Judged(t *testing.T, act stage.Act) {
	t.Helper()
	stagetest.Judged(t, act.Scenarios, map[string]func(*cluster.Outcome){
		"the volume is left where it should go, or gone where it should stay": func(o *cluster.Outcome) {
			o.OnDisk = !o.OnDisk
		},
		"one call too many":                func(o *cluster.Outcome) { o.DeleteCalls++ },
		"the PV is stuck":                  func(o *cluster.Outcome) { o.PV, o.Held = "Failed", true },
		"protected or not, wrongly":        func(o *cluster.Outcome) { o.Protected = !o.Protected },
		"released before it was reclaimed": func(o *cluster.Outcome) { o.Late = true },
	})
}
