//go:build unix

package deploy

import (
	"encoding/base64"
	"encoding/xml"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// chartMetadata is what Artifact Hub shows of a chart.
type chartMetadata struct {
	Home, Icon, KubeVersion string
	Sources, Keywords       []string
	Maintainers             []struct{ Name, URL string }
	Annotations             map[string]string
}

func TestChartsDescribeThemselves(t *testing.T) {
	for _, chart := range []string{guard, car} {
		var m chartMetadata
		must(t, yaml.Unmarshal(read(t, "charts", chart, "Chart.yaml"), &m))
		if m.Home == "" || m.KubeVersion == "" || len(m.Keywords) == 0 || !slices.Contains(m.Sources, m.Home) ||
			len(m.Maintainers) != 1 || m.Maintainers[0].URL != m.Home {
			t.Errorf("%s is described by %+v", chart, m)
		}
		// Where nobody reaches the internet, the icon is shown all the same.
		encoded, is := strings.CutPrefix(m.Icon, "data:image/svg+xml;base64,")
		picture, err := base64.StdEncoding.DecodeString(encoded)
		if !is || err != nil {
			t.Fatalf("%s has the icon %q: %v", chart, m.Icon, err)
		}
		if err := xml.Unmarshal(picture, new(struct{ XMLName xml.Name })); err != nil {
			t.Errorf("%s: the icon: %v", chart, err)
		}
		if license := m.Annotations["artifacthub.io/license"]; license != "Apache-2.0" {
			t.Errorf("%s has the license %q", chart, license)
		}
		var links []struct{ Name, URL string }
		if err := yaml.UnmarshalStrict([]byte(m.Annotations["artifacthub.io/links"]), &links); err != nil || len(links) == 0 {
			t.Errorf("%s has the links %v: %v", chart, links, err)
		}
		for _, link := range links {
			path, is := strings.CutPrefix(link.URL, m.Home+"/blob/main/")
			path, _, _ = strings.Cut(path, "#")
			if !is {
				t.Errorf("%s: the link %s", chart, link.URL)
				continue
			}
			read(t, "..", path)
		}
	}
}

// TestChartNamesItsKinds in the annotation, from which Artifact Hub lists them.
func TestChartNamesItsKinds(t *testing.T) {
	type kind struct{ Kind, Version, Name, DisplayName, Description string }
	var m chartMetadata
	must(t, yaml.Unmarshal(read(t, "charts", guard, "Chart.yaml"), &m))
	var named []kind
	must(t, yaml.UnmarshalStrict([]byte(m.Annotations["artifacthub.io/crds"]), &named))
	got, want := map[kind]bool{}, map[kind]bool{}
	for _, k := range named {
		if k.Description == "" || k.DisplayName != k.Kind {
			t.Errorf("%+v is not described", k)
		}
		got[kind{Kind: k.Kind, Version: k.Version, Name: k.Name}] = true
	}
	for _, values := range []string{"with pod safety", "with node fencing"} {
		for _, d := range render(t, guardValues()[values]...) {
			if d.GetKind() != "CustomResourceDefinition" {
				continue
			}
			name, _, _ := unstructured.NestedString(d.Object, "spec", "names", "kind")
			versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
			for _, version := range versions {
				version, _, _ := unstructured.NestedString(map[string]any{"in": version}, "in", "name")
				want[kind{Kind: name, Version: version, Name: d.GetName()}] = true
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the annotation names %v, and the chart installs %v", got, want)
	}
}

// standardLabels are on each object of a chart.
var standardLabels = []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version",
	"app.kubernetes.io/component", "app.kubernetes.io/part-of", "app.kubernetes.io/managed-by", "helm.sh/chart"}

func TestChartObjectsHaveStandardLabels(t *testing.T) {
	check := func(name string, all []document) {
		for _, d := range all {
			for _, key := range standardLabels {
				if d.GetLabels()[key] == "" {
					t.Errorf("%s: %s has no label %s", name, d, key)
				}
			}
			pod, _, _ := unstructured.NestedStringMap(d.Object, "spec", "template", "metadata", "labels")
			if pod != nil && pod["app"] != d.GetLabels()["app"] {
				t.Errorf("%s: the pods of %s have the labels %v", name, d, pod)
			}
		}
	}
	for name, values := range guardValues() {
		check(name, render(t, values...))
	}
	for _, values := range carValues() {
		check(car, renderCar(t, values...))
	}
}

// selectorsOf returns each selector for volume-guard's pods or its Service, by its object.
func selectorsOf(all []document) map[string]map[string]string {
	found := map[string]map[string]string{}
	for _, d := range all {
		if strings.Contains(d.GroupVersionKind().Group, "admission") { // they select objects of users
			continue
		}
		for _, path := range [][]string{{"selector"}, {"selector", "matchLabels"}, {"podSelector", "matchLabels"}} {
			if labels, _, err := unstructured.NestedStringMap(d.Object, append([]string{"spec"}, path...)...); err == nil &&
				labels != nil {
				found[d.GetKind()] = labels
			}
		}
	}
	return found
}

// TestChartSelectorsStay: those of a Deployment are immutable, and an upgrade must not miss pods of before.
func TestChartSelectorsStay(t *testing.T) {
	want := map[string]string{"app": guard}
	for name, more := range map[string][]string{
		"as it comes": nil,
		"renamed":     {"nameOverride=a", "fullnameOverride=b", "commonLabels.c=d", "podLabels.e=f"},
	} {
		values := append([]string{"webhooks.pods=true", "monitoring.podMonitor.enabled=true"}, more...)
		found := selectorsOf(render(t, values...))
		kinds := slices.Sorted(maps.Keys(found))
		if !slices.Equal(kinds, []string{"Deployment", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "Service"}) {
			t.Errorf("%s: selectors are in %q", name, kinds)
		}
		for kind, got := range found {
			if !maps.Equal(got, want) {
				t.Errorf("%s: %s selects %v, want %v", name, kind, got, want)
			}
		}
	}
}

// TestChartNamesAreOverridden: what runs has another name, and the API server and the certificate know the Service by
// it. What a second install must collide with keeps its name.
func TestChartNamesAreOverridden(t *testing.T) {
	values := append(guardValues()["with single-node's webhooks"], "fullnameOverride=keeper",
		"monitoring.podMonitor.enabled=true")
	all := render(t, values...)
	for _, kind := range []string{"Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor", "Deployment"} {
		find(t, all, kind, "keeper")
	}
	find(t, all, "Job", "keeper-release")
	find(t, all, "ClusterRole", guard)
	args := argsOf(t, all, "keeper")
	if !slices.Contains(args, "--webhook-service=keeper") {
		t.Errorf("the certificate is for another Service: %q", args)
	}
	webhooks := 0
	for _, d := range all {
		hooks, _, _ := unstructured.NestedSlice(d.Object, "webhooks")
		for _, hook := range hooks {
			webhooks++
			hook, _ := hook.(map[string]any)
			if name, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "name"); name != "keeper" {
				t.Errorf("%s: the Service %q", d, name)
			}
		}
	}
	if webhooks < 4 {
		t.Errorf("%d webhooks", webhooks)
	}
	for _, d := range render(t, "nameOverride=keeper", "commonLabels.app\\.kubernetes\\.io/part-of=storage",
		"commonLabels.team=a") {
		labels := d.GetLabels()
		if labels["app.kubernetes.io/name"] != "keeper" || labels["app.kubernetes.io/part-of"] != "storage" ||
			labels["team"] != "a" {
			t.Errorf("%s has the labels %v", d, labels)
		}
	}
	find(t, render(t, "nameOverride=keeper"), "Deployment", "keeper")
	for name, value := range map[string]string{"mock-keeper": "nameOverride=keeper", "keeper": "fullnameOverride=keeper"} {
		all := renderCar(t, value, "commonLabels.team=a")
		carRules(t, all, "ClusterRole", name)
		if team := find(t, all, "RoleBinding", name).GetLabels()["team"]; team != "a" {
			t.Errorf("%s has the label team=%q", name, team)
		}
	}
}

func TestPodLabelsAreAdded(t *testing.T) {
	all := render(t, "podLabels.team=a")
	pod := deploymentOf(t, all).Spec.Template.Labels
	if pod["team"] != "a" || pod["app"] != guard {
		t.Errorf("the pods have the labels %v", pod)
	}
	if job := jobOf(t, all).Spec.Template.Labels; job["team"] != "a" || job["app"] == guard {
		t.Errorf("the Job's pod has the labels %v", job)
	}
}

// guardNotes returns what helm says after an installation of volume-guard.
func guardNotes(t *testing.T, values ...string) string {
	t.Helper()
	return notes(t, append([]string{"install", guard, inDeploy(t, "charts", guard), "--namespace", guardHome},
		sets(values)...)...)
}

// TestNotesListFeatures: each is in the list of those that are on, or in that of those that can be switched on, by the
// values that do so.
func TestNotesListFeatures(t *testing.T) {
	features := map[string][]string{
		"podSafety.enabled=true":         {"podSafety.enabled=true"},
		"singleNode.enabled=true":        {"podSafety.enabled=true", "singleNode.enabled=true"},
		"statefulSetClaims.enabled=true": {"statefulSetClaims.enabled=true"},
		"statefulSetClaims.warn=true":    {"statefulSetClaims.warn=true"},
		"nodeFencing.enabled=true":       {"nodeFencing.enabled=true"},
		"web.enabled=true":               {"web.enabled=true"},
		"webhooks.pods=true":             {"webhooks.pods=true"},
		"controllers={*,pvc-protection}": {"controllers={*,pvc-protection}"},
		"controllers={*,pv-protection}":  {"controllers={*,pv-protection}"},
		"admissionPolicy.enabled=true":   {"admissionPolicy.enabled=true", "protectedDrivers.d=owner"},
	}
	on, off := onAndOff(t, guardNotes(t))
	if !strings.Contains(on, "intree: ") || strings.Contains(on, "=") {
		t.Errorf("by default on:\n%s", on)
	}
	for feature, values := range features {
		if !strings.Contains(off, feature) {
			t.Errorf("%s is not among what can be switched on:\n%s", feature, off)
		}
		on, off := onAndOff(t, guardNotes(t, values...))
		if !strings.Contains(on, feature) || strings.Contains(off, feature) {
			t.Errorf("with %q, on:\n%s\noff:\n%s", values, on, off)
		}
	}
}

// TestNotesKeepControllers: of two commands one after the other, the second one keeps the controller of the first.
func TestNotesKeepControllers(t *testing.T) {
	_, off := onAndOff(t, guardNotes(t, "controllers={-intree,pvc-protection,-pv-protection}"))
	if want := "'controllers={-intree,pvc-protection,pv-protection}'"; !strings.Contains(off, want) {
		t.Errorf("no %q in\n%s", want, off)
	}
}

// TestNotesNameImage: an upgrade that reuses the values keeps image.tag, so the version of the chart may not run.
func TestNotesNameImage(t *testing.T) {
	said := guardNotes(t, "image.registry=registry.example.com/storage", "image.tag=v0.0.9")
	if want := "registry.example.com/storage/volume-guard:v0.0.9 runs"; !strings.Contains(said, want) ||
		strings.Contains(said, "v0.1.0") {
		t.Errorf("want %q in\n%s", want, said)
	}
	const noRegistry = "named without a registry"
	if with, without := strings.Contains(said, noRegistry), guardNotes(t); with || !strings.Contains(without, noRegistry) {
		t.Errorf("with a registry:\n%s\nwithout:\n%s", said, without)
	}
}

// TestNotesNameNextSteps where nothing is done yet.
func TestNotesNameNextSteps(t *testing.T) {
	const idle = "has nothing to do until you switch on more"
	said := guardNotes(t, "fullnameOverride=keeper")
	for _, want := range []string{idle, "kubectl reclaim status", "deployment/keeper --namespace csi-reclaimer"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	if said = guardNotes(t, "web.enabled=true", "dryRun=true"); strings.Contains(said, idle) || !strings.Contains(said,
		"writes nothing") || !strings.Contains(said, "upgrade with dryRun=false before") {
		t.Errorf("with the page, for a first look:\n%s", said)
	}
	if !strings.Contains(said, "http://localhost:8080/web/") {
		t.Errorf("no address of the page in\n%s", said)
	}
	for _, page := range regexp.MustCompile(`(docs/explanation/)?[a-z-]+\.md`).FindAllString(said, -1) {
		if page == filepath.Base(page) {
			page = "docs/how-to/" + page
		}
		read(t, "..", page)
	}
}

// onAndOff returns the two lists of the notes.
func onAndOff(t *testing.T, notes string) (on, off string) {
	t.Helper()
	form := regexp.MustCompile(`(?s)\nOn:\n(.*?)\n\n(?:On Kubernetes .*?\n\n)?Off \([^\n]*\n(.*?)\n\n`)
	found := form.FindStringSubmatch(notes)
	if found == nil {
		t.Fatalf("no lists in\n%s", notes)
	}
	return found[1], found[2]
}
