//go:build unix

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	fencing "github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	shipped "github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/previous"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/terminal"
)

// TestChartsUpgradeAndRollBack installs the previous release's charts with all optional features, upgrades them as
// docs/how-to/upgrade.md says, and rolls them back. Each time, the API server has exactly the version's objects.
func TestChartsUpgradeAndRollBack(t *testing.T) {
	suite.Deep(t, suite.OtherVersion)
	release := previous.ForTest(t)
	from, err := release.Tree(patiently(t))
	must(t, err)
	to := filepath.Dir(inDeploy(t))
	upgrade, rollback := documented(t, "helm upgrade"), documented(t, "helm rollback")
	env := newCharts(t)
	for _, c := range []installed{
		{name: guard, namespace: guardHome, values: []string{"podSafety.enabled=true",
			"singleNode.enabled=true", "statefulSetClaims.enabled=true", "statefulSetClaims.warn=true",
			"nodeFencing.enabled=true", "nodeFencing.jobNamespaces={csi-reclaimer}", "nodeFencing.networkFences=true",
			"controllers={*,pvc-protection,pv-protection}", "webhooks.pods=true", "admissionPolicy.enabled=true",
			`protectedDrivers.disk\.csi\.example\.com=owner`, "monitoring.dashboard.enabled=true"}},
		{name: car, namespace: carHome, values: []string{"serviceAccount=mock-csi-controller", "capacity=true",
			"leakCheckInterval=1h"}},
	} {
		env.run(append([]string{"install", c.name, c.of(from), "--namespace", c.namespace, "--create-namespace"},
			sets(c.values)...)...)
		old := env.render(c, from)
		env.expectInstalled(old, nil)
		fence := env.createFence(c)
		env.run(c.instead(upgrade)...)
		env.expectInstalled(env.render(c, to), old)
		env.expectFence(fence)
		env.run(c.instead(rollback)...)
		env.expectInstalled(old, env.render(c, to))
		env.expectFence(fence)
	}
}

// TestChartsNameAbsentValuesOfPreviousRelease has charts with the values of the previous release in place of their own,
// as helm upgrade --reuse-values has. Over their own, a user's values of that release are complete.
func TestChartsNameAbsentValuesOfPreviousRelease(t *testing.T) {
	t.Parallel()
	suite.Deep(t, suite.OtherVersion)
	from, err := previous.ForTest(t).Tree(patiently(t))
	must(t, err)
	for _, chart := range []string{guard, car} {
		c := installed{name: chart, values: []string{"serviceAccount.name=a"}}
		if chart == car {
			c.values = []string{"serviceAccount=a"}
		}
		old := filepath.Join(c.of(from), "values.yaml")
		mustHelm(t, append([]string{"template", inDeploy(t, "charts", chart), "--values", old}, sets(c.values)...)...)
		mixed := t.TempDir()
		must(t, os.CopyFS(mixed, os.DirFS(inDeploy(t, "charts", chart))))
		values, err := os.ReadFile(old)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(mixed, "values.yaml"), values, 0o600))
		// Without new values in this release, there is no complaint.
		if _, err := helm(t, append([]string{"template", mixed}, sets(c.values)...)...); err != nil &&
			!strings.Contains(err.Error(), "missing propert") {
			t.Errorf("%s, instead of its own values: %v", chart, err)
		}
	}
}

// installed is a chart that is installed under its own name.
type installed struct {
	name, namespace string
	values          []string
}

// of returns the chart of the version with its files in a folder.
func (c installed) of(tree string) string { return filepath.Join(tree, "deploy", "charts", c.name) }

// instead returns a command of the page for this chart in place of volume-guard's.
func (c installed) instead(command []string) (args []string) {
	for _, arg := range command {
		if arg == guardHome {
			arg = c.namespace
		}
		args = append(args, strings.ReplaceAll(arg, guard, c.name))
	}
	return args
}

// charts is a control plane of a test's own, in which helm installs charts.
type charts struct {
	*fixture.Environment
	kubeconfig string
	client     dynamic.Interface
	kinds      meta.ResettableRESTMapper
	fences     *fencing.Client
}

func newCharts(t *testing.T) *charts {
	t.Helper()
	if _, err := terminal.Helm(); err != nil { // the environment has no time for its compilation
		t.Fatal(err)
	}
	env := &charts{Environment: fixture.NewWithControlPlane(t, controlplane.Newest, controlplane.Options{})}
	var err error
	env.kubeconfig, err = env.Plane.Kubeconfig(env.Plane.Admin())
	env.Must(err)
	env.client, err = dynamic.NewForConfig(env.Plane.Admin())
	env.Must(err)
	env.kinds = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(env.Client.Discovery()))
	env.fences, err = fencing.New(env.Plane.Admin())
	env.Must(err)
	return env
}

// run runs helm, and returns its output.
func (env *charts) run(args ...string) string {
	env.T.Helper()
	return mustHelm(env.T, env.with(args)...)
}

// with returns arguments for the environment's control plane.
func (env *charts) with(args []string) []string {
	return append(slices.Clone(args), "--kubeconfig", env.kubeconfig)
}

// render returns the objects of a version of a chart, without its hooks.
func (env *charts) render(c installed, of string) []*unstructured.Unstructured {
	env.T.Helper()
	text := env.run(append([]string{"template", c.name, c.of(of), "--namespace", c.namespace, "--no-hooks",
		"--kube-version", env.serverVersion()}, sets(c.values)...)...)
	all, err := shipped.Parse([]byte(text))
	env.Must(err)
	if len(all) == 0 {
		env.T.Fatalf("chart %s in %s installs nothing", c.name, of)
	}
	for _, o := range all {
		if o.GetNamespace() == "" {
			o.SetNamespace(c.namespace) // only on namespaced objects
		}
	}
	return all
}

func (env *charts) serverVersion() string {
	env.T.Helper()
	v, err := env.Client.Discovery().ServerVersion()
	env.Must(err)
	return v.GitVersion
}

// resource returns the client for objects of that kind, in that namespace.
func (env *charts) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	env.T.Helper()
	kind := o.GroupVersionKind()
	mapping, err := env.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	env.Must(err)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return env.client.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	return env.client.Resource(mapping.Resource)
}

// get returns an object as the API server has it, nil for none.
func (env *charts) get(o *unstructured.Unstructured) *unstructured.Unstructured {
	env.T.Helper()
	now, err := env.resource(o).Get(env.Ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	env.Must(err)
	return now
}

// expectInstalled checks that the API server has these objects as rendered, and none of the others.
func (env *charts) expectInstalled(want, others []*unstructured.Unstructured) {
	env.T.Helper()
	there := map[string]bool{}
	for _, o := range want {
		there[key(o)] = true
		now := env.get(o)
		if now == nil {
			env.T.Errorf("%s is not there", key(o))
			continue
		}
		for _, difference := range differences("", withoutNamespace(o).Object, now.Object) {
			env.T.Errorf("%s: %s", key(o), difference)
		}
	}
	for _, o := range others {
		kept := o.GetAnnotations()["helm.sh/resource-policy"] == "keep"
		if !there[key(o)] && !kept && env.get(o) != nil {
			env.T.Errorf("%s is left over", key(o))
		}
	}
}

func key(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

func withoutNamespace(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "metadata", "namespace")
	return o
}

// differences returns the parts of a rendered value that differ in the API server, which adds fields and keeps the
// order of lists.
func differences(path string, want, got any) (all []string) {
	switch want := want.(type) {
	case map[string]any:
		fields, _ := got.(map[string]any)
		for name, value := range want {
			if value == nil {
				continue // no value: the default
			}
			all = append(all, differences(path+"."+name, value, fields[name])...)
		}
	case []any:
		items, _ := got.([]any)
		if len(items) != len(want) {
			return []string{fmt.Sprintf("%s has %d items, want %d", path, len(items), len(want))}
		}
		for i := range want {
			all = append(all, differences(fmt.Sprintf("%s[%d]", path, i), want[i], items[i])...)
		}
	default:
		if !reflect.DeepEqual(want, got) {
			return []string{fmt.Sprintf("%s is %v, want %v", path, got, want)}
		}
	}
	return all
}

// createFence creates a NodeFence if the chart installs its kind: helm must not delete objects of that kind.
func (env *charts) createFence(of installed) *v1alpha1.NodeFence {
	env.T.Helper()
	if of.name != guard {
		return nil
	}
	var made *v1alpha1.NodeFence
	env.Eventually("NodeFences are served", func() (is bool) {
		var err error
		made, err = env.fences.Fences.Create(env.Ctx, newFence("node", byHand()...), metav1.CreateOptions{})
		if !apierrors.IsNotFound(err) {
			env.Must(err)
		}
		return err == nil
	})
	return made
}

// expectFence checks that a NodeFence is there, and can be written.
func (env *charts) expectFence(o *v1alpha1.NodeFence) {
	env.T.Helper()
	if o == nil {
		return
	}
	now, err := env.fences.Fences.Get(env.Ctx, o.Name, metav1.GetOptions{})
	env.Must(err)
	if now.UID != o.UID {
		env.T.Errorf("NodeFence %s was deleted and created again", o.Name)
	}
	now.Spec.Reason += ", again"
	_, err = env.fences.Fences.Update(env.Ctx, now, metav1.UpdateOptions{})
	env.Must(err)
}
