//go:build unix

package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/resource"
)

// commonFiles are what volume-guard is by default.
const commonFiles = "volume-guard.yaml rbac-volume-guard.yaml volume-guard-availability.yaml"

// guardComponents are those of the base volume-guard: the files whose objects each adds, the flags, and the values of
// the chart that do so.
var guardComponents = map[string]struct{ files, flags, values string }{
	"pvc-protection": {"rbac-volume-guard-pvc-protection.yaml", "--controllers=pvc-protection",
		"controllers={*,pvc-protection}"},
	"pv-protection": {"rbac-volume-guard-pv-protection.yaml", "--controllers=pv-protection",
		"controllers={*,pv-protection}"},
	"statefulset-claims": {"rbac-volume-guard-statefulset-claims.yaml", "--controllers=statefulset-claims",
		"statefulSetClaims.enabled=true"},
	"statefulset-warnings": {"statefulset-claims-warn.yaml", "", "statefulSetClaims.warn=true"},
	"pod-safety": {"pod-safety-crd.yaml pod-safety-policies.yaml pod-safety-hold.yaml rbac-volume-guard-pod-safety.yaml",
		"--controllers=pod-safety", "podSafety.enabled=true"},
	"pod-safety-webhook": {"pod-safety-crd.yaml pod-safety-policies.yaml pod-safety-hold-webhook.yaml " +
		"rbac-volume-guard-pod-safety.yaml", "--controllers=pod-safety", "podSafety.enabled=true,podSafety.webhook=true"},
	"single-node": {"single-node-policies.yaml single-node-gate.yaml rbac-volume-guard-single-node.yaml",
		"--controllers=single-node", "podSafety.enabled=true,singleNode.enabled=true"},
	"single-node-webhook": {"single-node-policies.yaml single-node-gate-webhook.yaml rbac-volume-guard-single-node.yaml",
		"--controllers=single-node", "podSafety.enabled=true,podSafety.webhook=true,singleNode.enabled=true"},
	"node-fencing": {"node-fencing-crd.yaml node-fencing-policy.yaml node-fencing-roles.yaml " +
		"rbac-volume-guard-node-fencing.yaml rbac-volume-guard-fence-agents.yaml", "--controllers=node-fencing",
		"nodeFencing.enabled=true"},
	"webhooks": {"volume-guard-webhooks.yaml Service; rbac-volume-guard-webhooks.yaml", "--webhook-address=:9443",
		"webhooks.pods=true"},
	"bindings-webhook":    {"volume-guard-webhooks.yaml ValidatingWebhookConfiguration", "", "webhooks.pods=true"},
	"protect-pvs":         {"admission-policy.yaml", "", ""},
	"protect-pvs-webhook": {"volume-guard-webhooks.yaml MutatingWebhookConfiguration", "", ""},
	"web":                 {"http-roles.yaml rbac-volume-guard-web.yaml", "--web", "web.enabled=true"},
	"settings":            {},
}

const (
	driverOfManifests = "disk.csi.example.com"
	sameSettings      = "namespace: csi-reclaimer, account: volume-guard, driver: " + driverOfManifests
)

// kustomized returns what kubectl apply -k reads of a folder: the code is that of kubectl.
func kustomized(t *testing.T, folder string) ([]document, error) {
	t.Helper()
	infos, err := resource.NewLocalBuilder().Unstructured().
		FilenameParam(false, &resource.FilenameOptions{Kustomize: folder}).Flatten().Do().Infos()
	if err != nil {
		return nil, err
	}
	var all []document
	for _, info := range infos {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(info.Object)
		must(t, err)
		d := document{Unstructured: &unstructured.Unstructured{Object: object}, file: folder}
		if d.text, err = d.MarshalJSON(); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all, nil
}

// overlay makes a kustomization of a user's, of a base with components and settings, and returns its folder.
func overlay(t *testing.T, base, settings string, components ...string) string {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	from, err := filepath.EvalSymlinks(inDeploy(t, "kustomize", base))
	must(t, err)
	if from, err = filepath.Rel(folder, from); err != nil {
		t.Fatal(err)
	}
	text := "resources:\n- settings.yaml\n- " + from + "\ncomponents:\n"
	for _, component := range components {
		text += "- " + filepath.Join(from, "components", component) + "\n"
	}
	config := "{apiVersion: v1, kind: ConfigMap, data: {" + settings + "}, metadata: {name: " + base + "-settings, " +
		`annotations: {config.kubernetes.io/local-config: "true"}}}`
	writeFiles(t, folder, map[string]string{kustomization: text, "settings.yaml": config})
	return folder
}

// mustKustomize returns the objects of an overlay.
func mustKustomize(t *testing.T, base, settings string, components ...string) []document {
	t.Helper()
	all, err := kustomized(t, overlay(t, base, settings, components...))
	if err != nil {
		t.Fatalf("%s with %q: %v", base, components, err)
	}
	return all
}

// TestKustomizeRendersManifests: each component adds the objects of its files as they are, the bindings that the chart
// has for it, its flags, and nothing else.
func TestKustomizeRendersManifests(t *testing.T) {
	for name, c := range guardComponents {
		rendered := bareByKey(mustKustomize(t, guard, sameSettings, name))
		for _, d := range manifestsOf(t, commonFiles+";"+c.files) {
			key, want := d.key(), bare(d)
			if d.GetKind() == "Namespace" && name == "settings" {
				continue // see TestKustomizeWritesSettings
			}
			if key == "Deployment/"+guard && c.flags != "" {
				changeArgs(t, want, func(args []any) []any { return append(args, c.flags) })
			}
			if !reflect.DeepEqual(rendered[key], want) {
				t.Errorf("%s: %s differs: rendered is\n%s\nand the manifest\n%s", name, d, pretty(rendered[key]), pretty(want))
			}
			delete(rendered, key)
		}
		if len(rendered) == 0 {
			continue
		}
		all := render(t, c.values)
		for key, got := range rendered {
			kind, object, _ := strings.Cut(key, "/")
			if want := bare(find(t, all, kind, object)); !strings.HasSuffix(kind, "Binding") || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: rendered besides is\n%s\nand the chart has\n%s", name, pretty(got), pretty(want))
			}
		}
	}
}

func TestKustomizeBaseIsTheDefault(t *testing.T) {
	all, err := kustomized(t, inDeploy(t, "kustomize", guard))
	must(t, err)
	if want := manifestsOf(t, commonFiles); len(all) != len(want) {
		t.Errorf("rendered are %v, want %v", all, want)
	}
	if all, err = kustomized(t, inDeploy(t, "manifests")); err == nil && len(all) > 0 {
		t.Errorf("deploy/manifests by itself renders %v", all)
	}
}

// TestKustomizeKnowsAllManifests and components: a file or folder that is in no list is forgotten.
func TestKustomizeKnowsAllManifests(t *testing.T) {
	var listed struct{ Resources []string }
	must(t, yaml.Unmarshal(read(t, "manifests", kustomization), &listed))
	// What a reader changes, or applies for a moment; drivers on nodes bind their own.
	without := []string{secretsFile, "rbac-node.yaml", "rbac-volume-guard-release-drivers.yaml", releaseFile}
	there := map[string]bool{}
	for _, d := range manifests(t) {
		there[d.file] = !strings.HasPrefix(d.file, "example") && !slices.Contains(without, d.file)
	}
	maps.DeleteFunc(there, func(_ string, wanted bool) bool { return !wanted })
	if want := slices.Sorted(maps.Keys(there)); !slices.Equal(slices.Sorted(slices.Values(listed.Resources)), want) {
		t.Errorf("listed are %q, want %q", listed.Resources, want)
	}
	folders, err := os.ReadDir(inDeploy(t, "kustomize", guard, "components"))
	if err != nil || len(folders) != len(guardComponents) {
		t.Errorf("%d components, %d are tested: %v", len(folders), len(guardComponents), err)
	}
}

// TestKustomizeWritesSettings wherever the manifests have the namespace, the account and the driver: the objects are
// those of the chart with these values.
func TestKustomizeWritesSettings(t *testing.T) {
	const home, account, driver = "storage", "keeper", "my.csi.example.com"
	out := mustHelm(t, template(t, "--namespace", home, "--set",
		"podSafety.enabled=true,singleNode.enabled=true,webhooks.pods=true,admissionPolicy.enabled=true,"+
			"nodeFencing.enabled=true,serviceAccount.name="+account, "--set",
		"protectedDrivers."+strings.ReplaceAll(driver, ".", `\.`)+"=owner")...)
	chart := bareByKey(documents(t, guard, []byte(out)))
	compared := 0
	for _, d := range mustKustomize(t, guard, "namespace: "+home+", account: "+account+", driver: "+driver, "settings",
		"pod-safety", "single-node", "webhooks", "bindings-webhook", "protect-pvs", "node-fencing") {
		for _, old := range []string{"serviceaccount:csi-reclaimer", driverOfManifests, `"namespace":"csi-reclaimer"`} {
			if strings.Contains(string(d.text), old) {
				t.Errorf("%s still has %s", d, old)
			}
		}
		switch key := d.key(); {
		case d.GetKind() == "Namespace":
			t.Errorf("%s is rendered, which may be there and another program's", d)
		case strings.HasPrefix(d.GetName(), "volume-guard-fence-agent"):
		case key == "Deployment/"+guard:
			if name, _, _ := unstructured.NestedString(d.Object, "spec", "template", "spec",
				"serviceAccountName"); name != account || d.GetNamespace() != home {
				t.Errorf("%s runs as %s in %s", d, name, d.GetNamespace())
			}
		default:
			compared++
			if got := bare(d); !reflect.DeepEqual(got, chart[key]) {
				t.Errorf("%s differs: rendered is\n%s\nand the chart has\n%s", d, pretty(got), pretty(chart[key]))
			}
		}
	}
	if compared < 50 {
		t.Errorf("only %d objects were compared", compared)
	}
	all := mustKustomize(t, guard, "driver: "+driver, "protect-pvs-webhook")
	webhook := find(t, all, "MutatingWebhookConfiguration", car)
	if !strings.Contains(string(webhook.text), driver) || strings.Contains(string(webhook.text), driverOfManifests) {
		t.Errorf("the webhook has another driver: %s", webhook.text)
	}
}

// TestKustomizeAlternativesExclude each other: pods would be held twice. Each renders alone.
func TestKustomizeAlternativesExclude(t *testing.T) {
	// Both remove the annotation of the objects that they share.
	const removedTwice = "error in remove for path: '/metadata/annotations/config.kubernetes.io~1local-config'"
	for _, name := range []string{"pod-safety", "single-node"} {
		webhook := name + "-webhook"
		mustKustomize(t, guard, sameSettings, name)
		mustKustomize(t, guard, sameSettings, webhook)
		_, err := kustomized(t, overlay(t, guard, sameSettings, name, webhook))
		if err == nil || !strings.Contains(err.Error(), removedTwice) {
			t.Errorf("%s with its webhook: %v, want %q", name, err, removedTwice)
		}
	}
}

// TestKustomizeRenderingsAreAccepted by the API server, in a dry run in which an unknown field is an error.
func TestKustomizeRenderingsAreAccepted(t *testing.T) {
	for base, components := range map[string][]string{guard: slices.Sorted(maps.Keys(guardComponents)),
		car: {"capacity", "leaks"}} {
		components = slices.DeleteFunc(components, func(name string) bool {
			return name == "pod-safety-webhook" || name == "single-node-webhook"
		})
		expectAccepted(t, base, mustKustomize(t, base, sameSettings, components...))
	}
}

// TestKustomizeGrantsRolesOfSidecar to the driver's account, in the driver's namespace.
func TestKustomizeGrantsRolesOfSidecar(t *testing.T) {
	const settings = "namespace: disk, account: controller"
	for name, c := range map[string]struct {
		components []string
		files      string
	}{
		"owner":     {nil, "rbac-owner.yaml"},
		"companion": {[]string{"companion"}, "rbac-companion.yaml"},
		"observer":  {[]string{"observer", "capacity", "leaks"}, "rbac-observer.yaml rbac-capacity.yaml rbac-leaks.yaml"},
	} {
		roles, bindings := map[string]document{}, 0
		for _, d := range mustKustomize(t, car, settings, append(c.components, "settings")...) {
			namespaced := d.GetKind() == "Role" || d.GetKind() == "RoleBinding"
			if namespaced != (d.GetNamespace() == "disk") {
				t.Errorf("%s: %s is in namespace %q", name, d, d.GetNamespace())
			}
			if !strings.HasSuffix(d.GetKind(), "Binding") {
				roles[d.key()] = d
				continue
			}
			bindings++
			carSubject(t, d)
		}
		want := manifestsOf(t, c.files)
		for _, d := range want {
			if got, is := roles[d.key()]; !is || !reflect.DeepEqual(got.rules(t), d.rules(t)) {
				t.Errorf("%s: %s is %v", name, d, got)
			}
		}
		if len(roles) != len(want) || bindings != len(want) {
			t.Errorf("%s: %d roles and %d bindings, want %d of each", name, len(roles), bindings, len(want))
		}
	}
}

// carSubject checks that a binding is of the role of its name, for the account of the settings.
func carSubject(t *testing.T, d document) {
	t.Helper()
	role, _, _ := unstructured.NestedMap(d.Object, "roleRef")
	if role["name"] != d.GetName() || role["kind"] != strings.TrimSuffix(d.GetKind(), "Binding") {
		t.Errorf("%s binds %v", d, role)
	}
	subjects, _, _ := unstructured.NestedSlice(d.Object, "subjects")
	if want := []any{map[string]any{"kind": accountKind, "name": "controller", "namespace": "disk"}}; !reflect.DeepEqual(
		subjects, want) {
		t.Errorf("%s binds to %v", d, subjects)
	}
}
