package inflight

import (
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 20_000) }

func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[state](t)
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		modeltest.Walk(t, modeltest.Random(t), &newWorker(w).Plain, 300, func(*state) {})
	})
}

func TestEachRuleOfTheTwoLeasesIsNeeded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		world, promise string
		without        func(*World)
	}{
		"a replaced entry stays until its replacement moves": {
			"old entries, restart", "L1", func(w *World) { w.replacedFirst = true },
		},
		"a removed entry leaves the old Lease first": {"old entries", "L1", func(w *World) { w.youngFirst = true }},
		"no entry moves while a write may land":      {"old entries", "L1", func(w *World) { w.eager = true }},
		"a write of the old Lease may land later":    {"old entries", "L1", func(w *World) { w.careless = true }},
		"the old Lease counts only from the leader": {
			"old entries, two leaders", "L1", func(w *World) { w.unchecked = true },
		},
		"a take-over writes the old Lease": {"old entries, two leaders", "L1", func(w *World) { w.youngAlone = true }},
		"an old Lease that did not count begins empty": {
			"old entries, former release", "L1", func(w *World) { w.leftovers = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worlds := Worlds()
			i := slices.IndexFunc(worlds, func(w World) bool { return w.Name == tc.world })
			tc.without(&worlds[i])
			modeltest.Finds(t, &worlds[i], 0, tc.promise)
		})
	}
}
