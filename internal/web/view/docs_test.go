package view

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestDocsOfReasons(t *testing.T) {
	for name, c := range map[string]struct {
		kind           Kind
		driver, reason string
		want           string
	}{
		"a PV":                     {KindPV, driver, "Held", ".md#deletion"},
		"a PV of an in-tree one":   {KindPV, "kubernetes.io/aws-ebs", "Held", "-volume-guard.md#volumes-of-in-tree-plugins"},
		"a claim without a volume": {KindClaim, driver, "InFlightLogFull", ".md#provisioning"},
		"a claim in use":           {KindClaim, driver, "InUse", "-volume-guard.md#claims-and-pvs-in-use"},
		"a claim of a set":         {KindClaim, driver, "ScaleDownGrace", "-volume-guard.md#claims-of-statefulsets"},
		"a claim of a lost PV":     {KindClaim, driver, "TerminatingBound", ".md#deletion"},
		"a pod": {KindPod, "", "WaitsForUnmount",
			"-volume-guard.md#pods-held-until-their-processes-have-ended"},
		"a fence":            {KindFence, "", "WaitsForConfirmation", "-volume-guard.md#fences-of-nodes"},
		"a lost node":        {KindNode, "", "NodeDown", ""},
		"a word of no table": {KindPV, driver, "Nonsense", ""},
		"no reason":          {KindPV, driver, "", ""},
	} {
		got := DocsOf(c.kind, c.driver, c.reason)
		if c.want != "" {
			c.want = "reference/events" + c.want
		}
		if got != c.want {
			t.Errorf("%s: %s is at %q, want %q", name, c.reason, got, c.want)
		}
	}
}

// TestDocsExist checks that each link of the page leads to a heading of the docs.
func TestDocsExist(t *testing.T) {
	anchors := map[string]bool{}
	for _, reference := range []string{sidecarEvents, guardEvents} {
		content := must.Get(os.ReadFile("../../../docs/" + strings.TrimSuffix(reference, "#")))(t)
		for _, heading := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(content), -1) {
			anchor := regexp.MustCompile(`[^a-z -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
			anchors[reference+strings.ReplaceAll(anchor, " ", "-")] = true
		}
	}
	for kind, pages := range pagesOf {
		for _, p := range append(pages, inTreePage) {
			if !anchors[p.path] {
				t.Errorf("%s: there is no %s among %v", kind, p.path, anchors)
			}
		}
	}
}

func TestDocsAddress(t *testing.T) {
	const repository = "https://github.com/csi-reclaimer/csi-reclaimer/blob/"
	for version, want := range map[string]string{"v1.2.3": "v1.2.3", "v1.2.3-rc.1": "main", "": "main",
		"v0.0.0-dev+g1": "main"} {
		if got := DocsAddress(version); got != repository+want+"/docs/" {
			t.Errorf("version %q has its docs at %s", version, got)
		}
	}
}
