//go:build unix

package deploy

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	shipped "github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/terminal"
)

// promised is one metric of docs/reference/metrics.md.
type promised struct {
	name   string
	labels []string
}

// promises returns the tables of docs/reference/metrics.md by their heading.
func promises(t *testing.T) map[string][]promised {
	t.Helper()
	row := regexp.MustCompile("^\\| `([a-z_]+)` \\| [a-z]+ \\| (.*?) \\|")
	label := regexp.MustCompile("`([a-z_]+)`")
	all := map[string][]promised{}
	heading := ""
	for line := range strings.Lines(string(read(t, "..", "docs", "reference", "metrics.md"))) {
		if title, is := strings.CutPrefix(line, "## "); is {
			heading = strings.TrimSpace(title)
		}
		if found := row.FindStringSubmatch(line); found != nil {
			p := promised{name: found[1]}
			for _, l := range label.FindAllStringSubmatch(found[2], -1) {
				p.labels = append(p.labels, l[1])
			}
			all[heading] = append(all[heading], p)
		}
	}
	return all
}

// hasWhatIsPromised expects each program to serve every metric of its table and of the common table, with its labels. A
// metric with a label has no sample before its first event; metrics whose events cannot be caused here are listed.
func hasWhatIsPromised(t *testing.T, live map[string]page) {
	all := promises(t)
	both, found := all["Both"]
	if !found {
		t.Fatalf("docs/reference/metrics.md has no table of both programs: %v", all)
	}
	for program, there := range live {
		if len(all[program]) < 5 {
			t.Errorf("docs/reference/metrics.md has %d metrics of %s", len(all[program]), program)
		}
		for _, p := range slices.Concat(all[program], both) {
			labels, served := there.metric(p.name)
			if !served {
				t.Errorf("%s: %s is promised and not served", program, p.name)
			}
			for _, l := range p.labels {
				if served && !slices.Contains(labels, l) {
					t.Errorf("%s: %s is promised with label %s, and served with %q", program, p.name, l, labels)
				}
			}
		}
	}
}

// metric returns the labels of a metric, also of a histogram.
func (s served) metric(name string) (labels []string, found bool) {
	for _, sample := range []string{name, name + "_count"} {
		if labels, found = s[sample]; found {
			return labels, true
		}
	}
	return nil, false
}

// followsConventions expects promtool to accept each program's metrics, its own and the libraries'.
func followsConventions(t *testing.T, live map[string]page) {
	for program, there := range live {
		for metric, problems := range lint(t, there.text) {
			t.Errorf("%s: %s: %s", program, metric, strings.Join(problems, "; "))
		}
	}
}

// lint returns promtool's complaints about metrics, by name.
func lint(t *testing.T, text string) map[string][]string {
	t.Helper()
	suite.Deep(t, suite.Compiles)
	promtool, err := terminal.Promtool()
	must(t, err)
	check := exec.CommandContext(patiently(t), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	out, err := check.CombinedOutput()
	const hasProblems = 3
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != hasProblems) {
		t.Fatalf("%v\n%s", err, out)
	}
	found := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		metric, problem, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[metric] = append(found[metric], problem)
	}
	if (err == nil) != (len(found) == 0) {
		t.Fatalf("%v\n%s", err, out)
	}
	return found
}

// TestUnconventionalMetricsAreDetected checks that lint understands promtool's output.
func TestUnconventionalMetricsAreDetected(t *testing.T) {
	const text = "# HELP %s Help.\n# TYPE %s counter\n%s 1\n"
	if found := lint(t, strings.ReplaceAll(text, "%s", "csi_reclaimer_deletions_total")); len(found) > 0 {
		t.Errorf("a sound counter: %v", found)
	}
	found := lint(t, strings.ReplaceAll(text, "%s", "csi_reclaimer_deletions"))
	if names := slices.Collect(maps.Keys(found)); !slices.Equal(names, []string{"csi_reclaimer_deletions"}) {
		t.Errorf("a counter without the ending of one: %v", found)
	}
}

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
	makeUnschedulable(t)
	makeFence(t, "scrape-none", byHand()...) // of a node that is not there
	makeUnreachable(t, maker)
	makePolicy(t, "scrape-fails", 0, cannotSelect)

	for running, last := range map[*program.Program][]string{
		car: {
			"leader_election_master_status", "controller_persistentvolume_delete_total",
			"controller_persistentvolume_delete_failed_total", "csi_reclaimer_waiting_pvs",
			"csi_reclaimer_reports_total", "controller_persistentvolumeclaim_provision_total",
			"controller_persistentvolumeclaim_provision_failed_total", "csistoragecapacities_desired_goal",
		},
		keeper: {"leader_election_master_status", "csi_reclaimer_intree_waiting_pvs", "csi_reclaimer_protection_waiting",
			"csi_reclaimer_pod_safety_waiting_pods", "csi_reclaimer_gated_pods", "csi_reclaimer_claim_locks",
			"csi_reclaimer_claim_locks_oldest_seconds", "csi_reclaimer_statefulset_waiting_claims",
			"csi_reclaimer_statefulset_waiting_sets", "csi_reclaimer_fence_waiting_nodes",
			"csi_reclaimer_fence_policies_waiting", "csi_reclaimer_fence_policy_waiting_nodes"},
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

// live is both programs as they run, beside a driver and in a namespace of their own.
type live struct {
	car, keeper *program.Program
	driver      *mockdriver.Driver
	maker       objects.Maker
}

// buildBoth compiles both programs, which takes longer than anything else here on a busy machine.
func buildBoth(t *testing.T) {
	t.Helper()
	for _, name := range []string{"csi-reclaimer", guard} {
		if _, err := program.Build(t.Context(), name, os.Stderr); err != nil {
			t.Fatal(err)
		}
	}
}

// startBoth starts a driver, and both programs with all that they can do; carArgs are further ones of csi-reclaimer.
func startBoth(t *testing.T, options mockdriver.Options, carArgs ...string) live {
	t.Helper()
	ctx := patiently(t)
	namespace, err := cluster.CreateNamespace(ctx, "scrape-")
	must(t, err)
	options.Profile = "no-attach"
	driver := mockdriver.ForTest(t, options)
	maker := objects.Maker{Client: client, Driver: driver.Name(), Namespace: namespace, CSI: driver.Controller()}
	must(t, rbac.GrantSidecar(ctx, client, namespace, "csi-reclaimer", "owner"))
	must(t, rbac.GrantCapacity(ctx, client, namespace, "csi-reclaimer"))
	must(t, rbac.GrantLeakCheck(ctx, client, namespace, "csi-reclaimer"))
	must(t, rbac.GrantGuard(ctx, client, namespace, guard))
	must(t, shipped.Apply(ctx, cluster.Admin(), shipped.NodeFencingCRD))

	car, err := program.StartSidecar(ctx, program.SidecarOptions{
		Address: driver.Socket(), Kubeconfig: kubeconfigOf(t, namespace, "csi-reclaimer"), Progress: os.Stderr,
		Args: append([]string{"--enable-capacity", "--capacity-ownerref-level=-1", "--leader-election", leaseDuration,
			renewDeadline}, carArgs...),
		Env: []string{"NAMESPACE=" + namespace, "POD_NAMESPACE=" + namespace, "POD_NAME=none"},
	})
	must(t, err)
	stopLater(t, car)
	keeper, err := program.Start(ctx, program.Options{
		Name: guard, Progress: os.Stderr, Env: []string{"POD_NAMESPACE=" + namespace},
		Args: []string{"--kubeconfig=" + kubeconfigOf(t, namespace, guard),
			"--controllers=*,pvc-protection,pv-protection,pod-safety,single-node,statefulset-claims,node-fencing",
			"--webhook-address=127.0.0.1:0", leaseDuration, renewDeadline},
	})
	must(t, err)
	stopLater(t, keeper)
	return live{car: car, keeper: keeper, driver: driver, maker: maker}
}

// A program keeps its lease also on a machine that keeps it, or its API server, waiting.
const (
	leaseDuration = "--leader-election-lease-duration=60s"
	renewDeadline = "--leader-election-renew-deadline=40s"
)

// kubeconfigOf returns a kubeconfig file of a service account.
func kubeconfigOf(t *testing.T, namespace, account string) string {
	t.Helper()
	config, err := cluster.ServiceAccount(patiently(t), namespace, account)
	must(t, err)
	path, err := cluster.Kubeconfig(config)
	must(t, err)
	return path
}
