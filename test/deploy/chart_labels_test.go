//go:build unix

package deploy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
	if job := jobOf(t, all).Spec.Template.Labels; job["team"] != "" || job["app"] == guard {
		t.Errorf("the Job's pod has the labels %v", job)
	}
}
