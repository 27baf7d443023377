//go:build unix

package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

const (
	rulesFile     = "csi-reclaimer.rules.yaml"
	rulesTests    = "csi-reclaimer.tests.yaml"
	dashboardFile = "csi-reclaimer.json"
	runbooks      = "https://github.com/csi-reclaimer/csi-reclaimer/blob/main/docs/how-to/"
)

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}
	must(t, yaml.Unmarshal(read(t, "alerts", rulesFile), &file))
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("%d alerts were found", len(all))
	}
	return all
}

func TestAlertsFire(t *testing.T) {
	if out, err := promtool(t, "check", "rules", "--lint=all", "--lint-fatal",
		inDeploy(t, "alerts", rulesFile)); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := promtool(t, "test", "rules", inDeploy(t, "alerts", rulesTests)); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestEachAlertIsTested expects a test in which the alert fires, and one in which it is silent.
func TestEachAlertIsTested(t *testing.T) {
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert    string           `json:"alertname"`
				Expected []map[string]any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	must(t, yaml.Unmarshal(read(t, "alerts", rulesTests), &file))
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			fires[c.Alert] = fires[c.Alert] || len(c.Expected) > 0
			silent[c.Alert] = silent[c.Alert] || len(c.Expected) == 0
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: tested to fire: %v, to be silent: %v", a.Alert, fires[a.Alert], silent[a.Alert])
		}
	}
}

// TestBrokenAlertIsDetected changes each alert so that it never fires, and expects its test to fail.
func TestBrokenAlertIsDetected(t *testing.T) {
	rules := string(read(t, "alerts", rulesFile))
	dir := t.TempDir()
	var broken []string
	for line := range strings.Lines(rules) {
		if indented, is := strings.CutPrefix(line, "      "); is && strings.HasPrefix(broken[len(broken)-1], "    expr:") {
			line = "      (" + strings.TrimSuffix(indented, "\n") + ") and vector(0) == 1\n"
		}
		broken = append(broken, line)
	}
	writeFiles(t, dir, map[string]string{rulesFile: strings.Join(broken, ""),
		rulesTests: string(read(t, "alerts", rulesTests))})
	out, err := promtool(t, "test", "rules", filepath.Join(dir, rulesTests))
	if err == nil {
		t.Fatalf("no test notices alerts that never fire\n%s", out)
	}
	for _, a := range alerts(t) {
		if !strings.Contains(err.Error()+out, a.Alert) {
			t.Errorf("%s never fires, and its test does not notice", a.Alert)
		}
	}
}

func TestEachAlertHasRunbook(t *testing.T) {
	root := process.RootForTest(t)
	files, err := filepath.Glob(filepath.Join(root, "docs", "how-to", "respond-to-alerts*.md"))
	must(t, err)
	pages := map[string]string{} // by the headings
	for _, file := range files {
		page, err := os.ReadFile(file)
		must(t, err)
		for _, heading := range regexp.MustCompile(`(?m)^#+ (\w+)$`).FindAllStringSubmatch(string(page), -1) {
			pages[heading[1]] = filepath.Base(file)
		}
	}
	for _, a := range alerts(t) {
		want := runbooks + pages[a.Alert] + "#" + strings.ToLower(a.Alert)
		if a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
		if pages[a.Alert] == "" {
			t.Errorf("docs/how-to/respond-to-alerts*.md have no heading %s", a.Alert)
		}
		delete(pages, a.Alert)
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: severity %q", a.Alert, a.Labels["severity"])
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s says nothing", a.Alert)
		}
	}
	for heading, page := range pages {
		if strings.HasPrefix(heading, "CSIReclaimer") || strings.HasPrefix(heading, "VolumeGuard") {
			t.Errorf("docs/how-to/%s explains %s, which is no alert", page, heading)
		}
	}
}

// TestAlertsNameExistingReasons finds renamed reasons, which would keep an alert silent forever.
func TestAlertsNameExistingReasons(t *testing.T) {
	known := map[string][]string{
		"csi_reclaimer_waiting_pvs":                words(reclaim.Reasons()),
		"csi_reclaimer_reports_total":              words(reclaim.Reasons()),
		"csi_reclaimer_intree_waiting_pvs":         words(intree.Reasons()),
		"csi_reclaimer_intree_reports_total":       words(intree.Reasons()),
		"csi_reclaimer_protection_waiting":         words(inuse.Reasons()),
		"csi_reclaimer_pod_safety_waiting_pods":    words(podsafety.Reasons()),
		"csi_reclaimer_gated_pods":                 words(singlenode.Reasons()),
		"csi_reclaimer_claim_locks":                words(singlenode.Reasons()),
		"csi_reclaimer_claim_locks_freed_total":    words(singlenode.Reasons()),
		"csi_reclaimer_fence_waiting_nodes":        words(fencing.Reasons()),
		"csi_reclaimer_fence_policies_waiting":     words(fencing.Reasons()),
		"csi_reclaimer_fence_policy_waiting_nodes": words(fencing.Reasons()),
		"csi_reclaimer_statefulset_waiting_claims": words(statefulset.Reasons()),
		"csi_reclaimer_statefulset_waiting_sets":   words(statefulset.Reasons()),
	}
	matcher := regexp.MustCompile(`(\w+)\{(?:reason|state)=~?"([^"]+)"\}`)
	found := 0
	for _, a := range alerts(t) {
		for _, m := range matcher.FindAllStringSubmatch(a.Expr, -1) {
			for _, word := range strings.Split(m[2], "|") {
				found++
				if !slices.Contains(known[strings.TrimSuffix(m[1], "_oldest_seconds")], word) {
					t.Errorf("%s: %s never has the reason %s", a.Alert, m[1], word)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("%d reasons were found: this test shows little", found)
	}
}

// TestAlertsNameWarnings expects an alert for each warning about the deletion of a volume, about a node that is to be
// fenced, and about the end of a fence. Other metrics show the excused warnings about PVs. Of the excused ones of
// fences, volume-guard removes a taint that remains, and metrics of attempts and phases show the others.
func TestAlertsNameWarnings(t *testing.T) {
	excused := []string{"FinalizerContested", "PVContested", "UnprotectedReclaim", "AdmissionPolicyIneffective",
		"AgentDeletesPods", "AgentFailed", "AgentTimedOut", "AllAgentsFailed", "HealthCheckGaveUp", "ProofContradicted",
		"TaintRemains"}
	aboutPVs := regexp.MustCompile("(DeletionsStuck|VolumeLeaked|KeptTooLate|HoldNotObeyed)$")
	named := ""
	for _, a := range alerts(t) {
		if aboutPVs.MatchString(a.Alert) || strings.Contains(a.Expr, "csi_reclaimer_fence_") {
			named += "|" + a.Expr
		}
	}
	warnings := 0
	for _, word := range slices.Concat(warningsOf(reclaim.Reasons()), warningsOf(intree.Reasons()),
		warningsOf(fencing.Reasons())) {
		warnings++
		if !slices.Contains(excused, word) && !regexp.MustCompile(`\b`+word+`\b`).MatchString(named) {
			t.Errorf("no alert names %s", word)
		}
	}
	if warnings < 20 {
		t.Errorf("%d warnings were found: this test shows little", warnings)
	}
}

func warningsOf[R interface {
	~string
	EventType() string
}](reasons []R) (all []string) {
	for _, r := range reasons {
		if r.EventType() == v1.EventTypeWarning {
			all = append(all, string(r))
		}
	}
	return all
}

func words[R ~string](reasons []R) (all []string) {
	for _, r := range reasons {
		all = append(all, string(r))
	}
	return all
}
