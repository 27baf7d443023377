//go:build unix

package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// TestChartRendersManifests compares the chart's objects with the manifests for kubectl.
func TestChartRendersManifests(t *testing.T) {
	const common = "volume-guard.yaml rbac-volume-guard.yaml volume-guard-availability.yaml"
	all := guardValues()
	for name, files := range map[string]string{
		"as it comes":     common,
		"with the policy": common + " admission-policy.yaml",
		"with protection": common + " rbac-volume-guard-pvc-protection.yaml rbac-volume-guard-pv-protection.yaml",
		"with webhooks":   common + " volume-guard-webhooks.yaml rbac-volume-guard-webhooks.yaml",
		"with pod safety": common + " pod-safety-crd.yaml pod-safety-policies.yaml pod-safety-hold.yaml " +
			"rbac-volume-guard-pod-safety.yaml",
		"with single-node": common + " pod-safety-crd.yaml pod-safety-policies.yaml pod-safety-hold.yaml " +
			"rbac-volume-guard-pod-safety.yaml single-node-policies.yaml single-node-gate.yaml " +
			"rbac-volume-guard-single-node.yaml",
		"with single-node's webhooks": common + " volume-guard-webhooks.yaml rbac-volume-guard-webhooks.yaml " +
			"pod-safety-crd.yaml pod-safety-policies.yaml pod-safety-hold-webhook.yaml rbac-volume-guard-pod-safety.yaml " +
			"single-node-policies.yaml single-node-gate-webhook.yaml rbac-volume-guard-single-node.yaml",
		"with claims of sets": common + " rbac-volume-guard-statefulset-claims.yaml",
		"with warnings":       common + " statefulset-claims-warn.yaml",
		"with the page":       common + " http-roles.yaml rbac-volume-guard-web.yaml",
		"with node fencing": common + " node-fencing-crd.yaml node-fencing-policy.yaml node-fencing-roles.yaml " +
			"rbac-volume-guard-node-fencing.yaml rbac-volume-guard-fence-agents.yaml",
		"with pod safety's webhooks": common + " volume-guard-webhooks.yaml rbac-volume-guard-webhooks.yaml " +
			"pod-safety-crd.yaml pod-safety-policies.yaml pod-safety-hold-webhook.yaml rbac-volume-guard-pod-safety.yaml",
	} {
		rendered := bareByKey(render(t, append(all[name], "image.tag=latest")...))
		for _, d := range manifestsOf(t, files) {
			if d.GetKind() == "Namespace" { // which is helm's to make
				continue
			}
			want := bare(d)
			if d.key() == "Deployment/"+guard {
				asManifest(t, want, all[name])
			}
			if !reflect.DeepEqual(rendered[d.key()], want) {
				t.Errorf("%s: %s differs: the chart has\n%s\nand the manifest\n%s", name, d, pretty(rendered[d.key()]),
					pretty(want))
			}
			delete(rendered, d.key())
		}
		// Objects that only the chart can have, or that need other software, and the other binding of this rendering.
		for _, more := range []string{
			"Job/volume-guard-release", "ClusterRoleBinding/volume-guard-pvc-protection",
			"ClusterRoleBinding/volume-guard-pv-protection", "ClusterRoleBinding/volume-guard-webhooks",
			"RoleBinding/volume-guard-webhooks", "ClusterRoleBinding/volume-guard-pod-safety",
			"RoleBinding/volume-guard-pod-safety", "ClusterRoleBinding/volume-guard-single-node",
			"ClusterRoleBinding/volume-guard-statefulset-claims",
			"ClusterRoleBinding/volume-guard-node-fencing", "RoleBinding/volume-guard-node-fencing",
			"RoleBinding/volume-guard-fence-agent-job", "RoleBinding/volume-guard-fence-agent-remediation",
			"ClusterRoleBinding/volume-guard-fence-agent-network",
			"ClusterRoleBinding/volume-guard-auth-delegator", "ClusterRoleBinding/volume-guard-web",
		} {
			delete(rendered, more)
		}
		if len(rendered) != 0 {
			t.Errorf("%s: no manifest has %q", name, slices.Sorted(maps.Keys(rendered)))
		}
	}
}

// TestChartMatchesCode compares each policy and webhook that lists drivers with the code, for all drivers and roles.
// The tests of pkg/admission run that code on a real API server.
func TestChartMatchesCode(t *testing.T) {
	const owned, second, beside = "disk.csi.example.com", "Another-1.csi.example.com", "file.csi.example.com"
	drivers := admission.Drivers{volume.RoleOwner: {owned, second}, volume.RoleCompanion: {beside}}
	of := func(names ...string) (values []string) {
		for _, name := range names {
			role := volume.RoleOwner
			if name == beside {
				role = volume.RoleCompanion
			}
			values = append(values, "protectedDrivers."+strings.ReplaceAll(name, ".", `\.`)+"="+role.String())
		}
		return values
	}
	service := admission.Service{Namespace: guardHome, Name: guard}
	for sentence, c := range map[string]struct {
		values []string
		want   []any
	}{
		"policies for both roles": {append(of(owned, second, beside), "admissionPolicy.enabled=true"), []any{
			admission.Policy(volume.RoleOwner, drivers[volume.RoleOwner]...), admission.Binding(volume.RoleOwner),
			admission.Policy(volume.RoleCompanion, beside), admission.Binding(volume.RoleCompanion),
		}},
		"a policy for role companion alone": {append(of(beside), "admissionPolicy.enabled=true"), []any{
			admission.Policy(volume.RoleCompanion, beside), admission.Binding(volume.RoleCompanion),
		}},
		"webhooks for both roles": {append(of(owned, second, beside), "webhooks.persistentVolumes=true",
			"webhooks.pods=true"), []any{
			admission.PVWebhooks(service, drivers), admission.PodWebhooks(service),
		}},
		"a webhook for role companion alone": {append(of(beside), "webhooks.persistentVolumes=true"), []any{
			admission.PVWebhooks(service, admission.Drivers{volume.RoleCompanion: {beside}}),
		}},
		"nothing in a dry run": {append(of(owned, beside), "admissionPolicy.enabled=true", "webhooks.pods=true",
			"dryRun=true"), nil},
	} {
		rendered := bareByKey(slices.DeleteFunc(render(t, c.values...), func(d document) bool {
			return d.GroupVersionKind().Group != "admissionregistration.k8s.io"
		}))
		for _, object := range c.want {
			text, err := json.Marshal(object)
			must(t, err)
			var want unstructured.Unstructured
			must(t, yaml.Unmarshal(text, &want.Object))
			key := want.GetKind() + "/" + want.GetName()
			if !reflect.DeepEqual(rendered[key], want.Object) {
				t.Errorf("%s: %s: the chart has\n%s\nand the code\n%s", sentence, key, pretty(rendered[key]), pretty(want.Object))
			}
			delete(rendered, key)
		}
		if len(rendered) > 0 {
			t.Errorf("%s: the chart has %q besides", sentence, slices.Sorted(maps.Keys(rendered)))
		}
	}
}

// bare returns the object without helm's additions: its labels, and the namespace of a Role, which kubectl apply -n
// sets.
func bare(d document) map[string]any {
	o := d.DeepCopy()
	drop := func(fields ...string) {
		labels, _, _ := unstructured.NestedStringMap(o.Object, fields...)
		maps.DeleteFunc(labels, func(key, _ string) bool {
			return key == "app" && o.GetKind() != "Deployment" || slices.Contains(standardLabels, key)
		})
		unstructured.RemoveNestedField(o.Object, fields...)
		if len(labels) > 0 {
			_ = unstructured.SetNestedStringMap(o.Object, labels, fields...)
		}
	}
	drop("metadata", "labels")
	if o.GetKind() == "Deployment" {
		drop("spec", "template", "metadata", "labels")
	}
	if o.GetNamespace() == guardHome {
		o.SetNamespace("")
	}
	// Kinds stay, or helm would delete them before their objects.
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/resource-policy")
	if len(o.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	}
	return o.Object
}

func (d document) key() string { return d.GetKind() + "/" + d.GetName() }

func bareByKey(all []document) map[string]map[string]any {
	objects := map[string]map[string]any{}
	for _, d := range all {
		objects[d.key()] = bare(d)
	}
	return objects
}

// changeArgs changes the arguments of a Deployment's only container, which it returns.
func changeArgs(t *testing.T, o map[string]any, change func(args []any) []any) (container map[string]any) {
	t.Helper()
	containers, _, _ := unstructured.NestedFieldNoCopy(o, "spec", "template", "spec", "containers")
	all, _ := containers.([]any)
	if len(all) != 1 {
		t.Fatalf("%d containers", len(all))
	}
	container, _ = all[0].(map[string]any)
	args, _ := container["args"].([]any)
	container["args"] = change(args)
	return container
}

// asManifest changes the manifest's Deployment as its comments tell the reader to for these values, and as the chart
// does for all.
func asManifest(t *testing.T, o map[string]any, values []string) {
	t.Helper()
	controllers := map[string]string{"podSafety.enabled": ",pod-safety", "singleNode.enabled": ",single-node",
		"statefulSetClaims.enabled": ",statefulset-claims", "nodeFencing.enabled": ",node-fencing"}
	container := changeArgs(t, o, func(args []any) []any {
		for _, value := range values {
			switch name, is, _ := strings.Cut(value, "="); name {
			case "controllers":
				args[0] = "--controllers=" + strings.Trim(is, "{}")
			case "webhooks.pods":
				args = append(args, "--webhook-address=:9443")
			case "web.enabled":
				args = append(args, "--web")
			default:
				args[0] = fmt.Sprint(args[0], controllers[name])
			}
		}
		return args
	})
	container["imagePullPolicy"] = "IfNotPresent"
}

func pretty(o any) string {
	text, _ := json.MarshalIndent(o, "", " ")
	return string(text)
}

// TestChartContainsCopies compares the chart's copies with their originals, since a chart cannot read beyond its
// folder.
func TestChartContainsCopies(t *testing.T) {
	copies := map[string]string{rulesFile: filepath.Join("alerts", rulesFile),
		dashboardFile: filepath.Join("dashboard", dashboardFile)}
	for _, name := range []string{"pod-safety-crd", "pod-safety-policies", "pod-safety-hold", "pod-safety-hold-webhook",
		"single-node-policies", "single-node-gate", "single-node-gate-webhook", "node-fencing-crd", "node-fencing-policy",
		"node-fencing-roles", "statefulset-claims-warn", "http-roles"} {
		copies[name+".yaml"] = filepath.Join("manifests", name+".yaml")
	}
	if there, err := os.ReadDir(inDeploy(t, "charts", guard, "files")); err != nil || len(there) != len(copies) {
		t.Errorf("%d files, want %d: %v", len(there), len(copies), err)
	}
	for copied, from := range copies {
		if string(read(t, "charts", guard, "files", copied)) != string(read(t, from)) {
			t.Errorf("deploy/charts/%s/files/%s is not deploy/%s: copy it", guard, copied, from)
		}
	}
	all := render(t, guardValues()["with monitoring"]...)
	var rules map[string]any
	must(t, yaml.Unmarshal(read(t, "alerts", rulesFile), &rules))
	if rule := find(t, all, "PrometheusRule", "csi-reclaimer"); !reflect.DeepEqual(rule.Object["spec"], any(rules)) {
		t.Errorf("the PrometheusRule has\n%s", pretty(rule.Object["spec"]))
	}
	data, _, _ := unstructured.NestedStringMap(find(t, all, "ConfigMap", "csi-reclaimer-dashboard").Object, "data")
	if strings.TrimSpace(data[dashboardFile]) != strings.TrimSpace(string(read(t, "dashboard", dashboardFile))) {
		t.Error("the ConfigMap has another dashboard")
	}
	find(t, all, "PodMonitor", guard)
}
