//go:build unix

package deploy

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// served holds the metrics that a program answers with, and the labels of each.
type served map[string][]string

// page is a program's answer.
type page struct {
	served
	text string
}

// scrape returns both programs' metrics, by the program's name, with all features switched on. It causes the events
// without which some metrics do not exist.
func scrape(t *testing.T) map[string]page {
	t.Helper()
	buildBoth(t)
	forgetGuard(t)
	ctx := patiently(t)
	there := map[string]page{}
	live := startBoth(t, mockdriver.Options{Name: "scrape.csi-reclaimer.io"}, "--brake-deletions=9",
		"--leak-check-interval=1m")
	car, keeper, driver, maker := live.car, live.keeper, live.driver, live.maker

	makeClassFor(t, live, scrapeClass)
	// One volume is made and deleted; one cannot be deleted; one cannot be made.
	made, stays := waitBound(t, maker, "made"), waitBound(t, maker, "stays")
	must(t, driver.SetFaults(ctx, plan(faults.Rule{Method: "CreateVolume", Action: faults.Fail, Code: "Internal"},
		faults.Rule{Method: "DeleteVolume", Volume: stays.Spec.CSI.VolumeHandle, Action: faults.Fail, Code: "Internal"})))
	deleteClaimOf(t, made)
	deleteClaimOf(t, stays)
	_, err := maker.MakeClaim(ctx, objects.ClaimSpec{Name: "never", Class: scrapeClass})
	must(t, err)
	// One, of an in-tree plugin, is being deleted while its claim is there.
	makeInTree(t, maker.Namespace)
	makeHeld(t, maker, "none")
	makeScaledDown(t, maker.Namespace)
	makeGated(t, "a", "b")
	makeFence(t, "scrape-none", byHand()...) // of a node that is not there
	makeUnreachable(t, maker)

	for running, last := range map[*program.Program][]string{
		car: {
			"leader_election_master_status", "controller_persistentvolume_delete_total",
			"controller_persistentvolume_delete_failed_total", "csi_reclaimer_waiting_pvs",
			"csi_reclaimer_reports_total", "controller_persistentvolumeclaim_provision_total",
			"controller_persistentvolumeclaim_provision_failed_total",
		},
		keeper: {"leader_election_master_status", "csi_reclaimer_intree_waiting_pvs", "csi_reclaimer_protection_waiting",
			"csi_reclaimer_pod_safety_waiting_pods", "csi_reclaimer_gated_pods", "csi_reclaimer_claim_locks",
			"csi_reclaimer_statefulset_waiting_claims",
			"csi_reclaimer_statefulset_waiting_sets", "csi_reclaimer_fence_waiting_nodes",
			"csi_reclaimer_fence_policy_waiting_nodes"},
	} {
		there[map[*program.Program]string{car: "csi-reclaimer", keeper: guard}[running]] = waitMetrics(ctx, t, running, last)
	}
	must(t, driver.ClearFaults(ctx)) // so that all of it goes
	return there
}

// waitMetrics returns the program's metrics, once they include these.
func waitMetrics(ctx context.Context, t *testing.T, running *program.Program, last []string) page {
	t.Helper()
	there := served{}
	line := regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	for {
		text, err := running.Get(ctx, "/metrics")
		for _, found := range line.FindAllStringSubmatch(text, -1) {
			there[found[1]] = nil
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(found[2], -1) {
				there[found[1]] = append(there[found[1]], label[1])
			}
		}
		missing := ""
		for _, name := range last {
			if _, is := there[name]; !is {
				missing += " " + name
			}
		}
		if missing == "" && err == nil {
			return page{there, text}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("without%s: %v\n%s", missing, err, running.LogTail(20))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func stopLater(t *testing.T, running *program.Program) {
	t.Helper()
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Errorf("%v\n%s", err, strings.TrimSpace(running.LogTail(20)))
		}
	})
}
