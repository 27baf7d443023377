//go:build unix

package deploy

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

const (
	car     = "csi-reclaimer"
	carHome = "mock-csi" // the example's namespace
)

// carValues are ways to install the chart; all that it can render is in one of them.
func carValues() map[string][]string {
	const account = "serviceAccount=disk-controller"
	return map[string][]string{
		"as it comes":    nil,
		"for an account": {account},
		"as companion":   {account, "role=companion"},
		"as observer":    {account, "role=observer", "container.brakeDeletions=0"},
		"with monitoring": {account, "monitoring.podMonitor.enabled=true", "monitoring.podMonitor.matchLabels.app=disk",
			"monitoring.podMonitor.tokenSecret.name=prometheus", "monitoring.podMonitor.interval=30s"},
		"with a ServiceMonitor": {account, "monitoring.serviceMonitor.enabled=true",
			"monitoring.serviceMonitor.matchLabels.app=disk", "monitoring.serviceMonitor.tokenSecret.name=prometheus",
			"monitoring.serviceMonitor.interval=30s", "monitoring.serviceMonitor.labels.release=prometheus"},
		"with Secrets": {account, "secrets.storage={one,two}", "secrets.other={three}"},
		"with all options": {account, "capacity=true", "capacityOwnerrefLevel=1", "leakCheckInterval=1h",
			"container.extraArgs={--worker-threads=3}",
			"image.registry=registry.example.com/storage", "image.pullPolicy=Always", "container.extraEnv[0].name=A",
			"container.securityContext.runAsUser=0"},
	}
}

// carFlags returns helm's flags for the chart, for the example's driver.
func carFlags(t *testing.T, command string, values ...string) []string {
	t.Helper()
	return append([]string{command, "mock", inDeploy(t, "charts", car), "--namespace", carHome, "--set",
		"serviceAccount=mock-csi-controller"}, sets(values)...)
}

func renderCar(t *testing.T, values ...string) []document {
	t.Helper()
	return documents(t, car, []byte(mustHelm(t, carFlags(t, "template", values...)...)))
}

// carRules are the rules of a rendering for a kind of role, and whether a binding was missing.
func carRules(t *testing.T, all []document, kind, name string) []rbacv1.PolicyRule {
	t.Helper()
	binding := findAs[rbacv1.RoleBinding](t, all, kind+"Binding", name)
	if binding.RoleRef.Name != name || binding.RoleRef.Kind != kind || len(binding.Subjects) != 1 ||
		binding.Subjects[0].Name != "mock-csi-controller" || binding.Subjects[0].Namespace != carHome {
		t.Errorf("%s %s is bound as %+v", kind, name, binding)
	}
	return find(t, all, kind, name).rules(t)
}

func TestSidecarChartGrantsManifestPermissions(t *testing.T) {
	for _, role := range []string{"owner", "companion", "observer"} {
		cluster, namespaced, err := rbac.Rules(role)
		must(t, err)
		all := renderCar(t, "role="+role)
		if got := carRules(t, all, "ClusterRole", "mock-csi-reclaimer"); !reflect.DeepEqual(got, cluster) {
			t.Errorf("%s: grants in the cluster %s, want %s", role, pretty(got), pretty(cluster))
		}
		if got := carRules(t, all, "Role", "mock-csi-reclaimer"); !reflect.DeepEqual(got, namespaced) {
			t.Errorf("%s: grants in the namespace %s, want %s", role, pretty(got), pretty(namespaced))
		}
		if len(all) != 4 {
			t.Errorf("%s: %d objects: %v", role, len(all), all)
		}
	}
	want, err := rbac.CapacityRules()
	must(t, err)
	if got := carRules(t, renderCar(t, "capacity=true"), "Role", "mock-csi-reclaimer-capacity"); !reflect.DeepEqual(got,
		want) {
		t.Errorf("grants for capacity %s, want %s", pretty(got), pretty(want))
	}
	if want, err = rbac.AuditRules(); err != nil {
		t.Fatal(err)
	}
	if got := carRules(t, renderCar(t, "leakCheckInterval=1h"), "ClusterRole",
		"mock-csi-reclaimer-leaks"); !reflect.DeepEqual(got, want) {
		t.Errorf("grants for the audit %s, want %s", pretty(got), pretty(want))
	}
	for _, file := range []string{"rbac-owner.yaml", "rbac-companion.yaml", "rbac-observer.yaml", "rbac-capacity.yaml",
		"rbac-leaks.yaml"} {
		if string(read(t, "charts", car, "files", file)) != string(read(t, "manifests", file)) {
			t.Errorf("deploy/charts/%s/files/%s is not that of deploy/manifests: copy it", car, file)
		}
	}
}

func TestSidecarChartGrantsNoSecretsByDefault(t *testing.T) {
	secrets := func(all []document) (granting []document) {
		for _, d := range all {
			if slices.ContainsFunc(d.rules(t),
				func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "secrets") }) {
				granting = append(granting, d)
			}
		}
		return granting
	}
	for _, role := range []string{"owner", "companion", "observer"} {
		capacity := "capacity=" + strconv.FormatBool(role == "owner")
		if granting := secrets(renderCar(t, "role="+role, capacity)); len(granting) != 0 {
			t.Errorf("%s: %v", role, granting)
		}
	}
	all := renderCar(t, "secrets.storage={one,two}", "secrets.other={three}")
	granting := secrets(all)
	want := map[string][]string{"storage": {"one", "two"}, "other": {"three"}}
	if len(granting) != len(want) {
		t.Fatalf("Secrets are granted by %v", granting)
	}
	for _, d := range granting {
		rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
			ResourceNames: want[d.GetNamespace()], Verbs: []string{"get"}}
		if rules := d.rules(t); d.GetKind() != "Role" || !reflect.DeepEqual(rules, []rbacv1.PolicyRule{rule}) {
			t.Errorf("%s in %q: %+v", d, d.GetNamespace(), rules)
		}
	}
}

func TestInvalidSidecarChartValuesAreRefused(t *testing.T) {
	for value, complaint := range map[string]string{
		"serviceAccount=":                        "serviceAccount",
		"role=nobody":                            "role",
		"secrets.storage={}":                     "secrets",
		"secrets.storage={*}":                    "secrets",
		"container.extraArgs={--role=owner}":     "extraArgs",
		"container.socket=csi.sock":              "socket",
		"container.httpPort=0":                   "httpPort",
		"leakCheckInterval=often":                "leakCheckInterval",
		"capacityOwnerrefLevel=3":                "capacityOwnerrefLevel",
		"role=companion,capacity=true":           "external-provisioner publishes",
		"container.extraArgs={--metrics-path=m}": "extraArgs",
		"container.brakes=1":                     "brakes",
		"container.extraEnv[0].name=POD_NAME":    "extraEnv",
		"monitoring.podMonitor.enabled=true":     "matchLabels",
		"monitoring.serviceMonitor.enabled=true": "matchLabels",
		"monitoring.podMonitor.enabled=true,monitoring.serviceMonitor.enabled=true": "choose one",
		"image.digest=latest":                    "digest",
		"nameOverride=A":                         "nameOverride",
		`commonLabels.helm\.sh/chart=a`:          "helm.sh/chart",
		"container.resources.request.memory=1Gi": "request",
	} {
		expectRefused(t, complaint, carFlags(t, "template", value)...)
	}
}

// TestExampleDeploymentWorks shows that the example container runs.
func TestSnippetMatchesExampleContainer(t *testing.T) {
	want := container(t, example(t).Spec.Template.Spec, car)
	if got := snippet(t, "image.tag=latest"); !reflect.DeepEqual(got, want) {
		t.Errorf("the chart shows %s, want %s", pretty(got), pretty(want))
	}
	mounts := findAs[appsv1.Deployment](t, manifestsOf(t, "example-mounts.yaml"), "Deployment", "")
	if in := container(t, mounts.Spec.Template.Spec, car); !reflect.DeepEqual(in, want) {
		t.Errorf("example-mounts.yaml has %s, want %s", pretty(in), pretty(want))
	}
	got := snippet(t, "role=companion", "container.extraArgs={--worker-threads=3}", "container.socket=/run/d/d.sock",
		"container.socketVolume=run", "container.brakeDeletions=0")
	if args := []string{"--csi-address=/run/d/d.sock", "--role=companion", "--leader-election", "--http-endpoint=:8080",
		"--worker-threads=3"}; !slices.Equal(got.Args, args) {
		t.Errorf("the arguments are %q, want %q", got.Args, args)
	}
	if m := got.VolumeMounts[0]; m.Name != "run" || m.MountPath != "/run/d" {
		t.Errorf("the socket is in %+v", m)
	}
	if got = snippet(t, "leakCheckInterval=1h30m"); !slices.Contains(got.Args, "--leak-check-interval=1h30m") {
		t.Errorf("with audits: %q", got.Args)
	}
	got = snippet(t, "capacity=true")
	var named []string
	for _, e := range got.Env {
		named = append(named, e.Name)
	}
	if !slices.Contains(got.Args, "--enable-capacity") || !slices.Contains(got.Args, "--capacity-ownerref-level=2") ||
		!slices.Equal(named, []string{"POD_NAMESPACE", "NAMESPACE", "POD_NAME"}) {
		t.Errorf("with capacity: %q, %q", got.Args, named)
	}
	for _, level := range []string{"1", "-1"} { // in a StatefulSet, or without an owner
		got = snippet(t, "capacity=true", "capacityOwnerrefLevel="+level)
		if !slices.Contains(got.Args, "--capacity-ownerref-level="+level) {
			t.Errorf("with capacity of owner level %s: %q", level, got.Args)
		}
	}
}

// snippet returns the container that helm shows at the end of an installation.
func snippet(t *testing.T, values ...string) v1.Container {
	t.Helper()
	said := notes(t, carFlags(t, "install", values...)...)
	_, text, _ := strings.Cut(said, "\n\n")
	var containers []v1.Container
	if err := yaml.UnmarshalStrict([]byte(text), &containers); err != nil || len(containers) != 1 {
		t.Fatalf("%d containers, %v in\n%s", len(containers), err, said)
	}
	return containers[0]
}

// notes returns what helm says at the end of an installation.
func notes(t *testing.T, install ...string) string {
	t.Helper()
	out := mustHelm(t, append(install, "--dry-run=client", "--output=json")...)
	var release struct {
		Info struct {
			Notes string `json:"notes"`
		} `json:"info"`
	}
	must(t, json.Unmarshal([]byte(out), &release))
	return release.Info.Notes
}
