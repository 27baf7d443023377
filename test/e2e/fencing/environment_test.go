//go:build unix

package fencing

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

const (
	// controller is the controller under test, and podSafety holds the pods.
	controller, podSafety = "node-fencing", "pod-safety"
	// heartbeat is how often played nodes renew their Leases.
	heartbeat = 2 * time.Second
	// patience bounds each wait. A wait for the controller's clocks takes up to a minute of it.
	patience = 3 * time.Minute
	// sideBySide is how many scenarios of one control plane run at a time: they wait most of the time.
	sideBySide = 20
	// ownTaint is the value of the taint by which volume-guard releases pods and volumes of a node.
	ownTaint = "csi-reclaimer"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// environment is the environment of a test: its own control plane, because fences and policies are cluster-wide, and a
// namespace with held pods.
type environment struct {
	*guard.Environment
	fences  *client.Client
	dynamic dynamic.Interface
	// guard is the running volume-guard, if any.
	guard *program.Program
	// holds means that volume-guard holds pods.
	holds bool
	// spare is a node that does not fail. Jobs run there, and pods that are replaced.
	spare *machine
	// kubelet is a client with the rights of the spare node: only the node may report the end of pods.
	kubelet kubernetes.Interface
}

// newEnvironment starts a control plane with the kinds, and a node that does not fail. volume-guard, which does not run
// yet, fences nodes and holds pods.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	return newEnvironmentOf(t, controller, podSafety)
}

// newEnvironmentOf is newEnvironment for other controllers of volume-guard.
func newEnvironmentOf(t *testing.T, controllers ...string) *environment {
	t.Helper()
	plane := controlplane.Options{
		Scheduler: true,
		// A node is Unknown some seconds after its last renewal, and its pods are deleted at once then, also where most nodes
		// are away.
		ControllerManagerArgs: []string{"--node-monitor-grace-period=10s", "--node-monitor-period=1s",
			"--node-eviction-rate=100", "--secondary-node-eviction-rate=100", "--large-cluster-size-threshold=0"},
	}
	env := &environment{holds: slices.Contains(controllers, podSafety),
		Environment: guard.New(t, fixture.Version(), plane, controllers...)}
	env.Patience, env.Flags = patience, append(env.Flags, "--unmount-grace=1s")
	var err error
	env.fences, err = client.New(env.Plane.Admin())
	env.Must(err)
	env.dynamic, err = dynamic.NewForConfig(env.Plane.Admin())
	env.Must(err)
	env.ApplyManifest(manifests.NodeFencingCRD)
	env.ApplyManifest(manifests.PodSafetyCRD)
	env.ApplyManifest(manifests.PodSafetyPolicies, guard.Account, env.User)
	env.applyKinds()
	_, err = env.MakeDriver(env.Ctx, nil)
	env.Must(err)
	env.holdPods()
	env.Rules = append(env.Rules, env.grantAgents()...)
	env.spare = env.machine("spare", nil)
	config, err := env.Plane.ConfigFor(fakenode.User(env.spare.name), fakenode.Group)
	env.Must(err)
	env.kubelet, err = kubernetes.NewForConfig(config)
	env.Must(err)
	return env
}

// applyKinds has the API server serve the kinds of other projects.
func (env *environment) applyKinds() {
	env.T.Helper()
	text, err := os.ReadFile("testdata/kinds.yaml")
	env.Must(err)
	definitions := env.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var o unstructured.Unstructured
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return
		}
		env.Must(err)
		_, err = definitions.Create(env.Ctx, &o, metav1.CreateOptions{})
		env.Must(err)
		env.Eventually(o.GetName()+" is served", func() bool {
			now, err := definitions.Get(env.Ctx, o.GetName(), metav1.GetOptions{})
			env.Must(err)
			return conditionIsTrue(now, "Established")
		})
	}
}

// holdPods has volume-guard hold the pods of the namespace.
func (env *environment) holdPods() {
	env.T.Helper()
	_, err := env.Client.CoreV1().Namespaces().Patch(env.Ctx, env.Namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+podsafety.NamespaceLabel+`":"enforce"}}}`), metav1.PatchOptions{})
	env.Must(err)
}

// grantAgents lets volume-guard run agents in the environment's namespace, and returns the shipped rules for them.
func (env *environment) grantAgents() []rbacv1.PolicyRule {
	env.T.Helper()
	rules, err := rbac.GrantFenceAgents(env.Ctx, env.Client, env.DriverNamespace, guard.Name, env.Namespace)
	env.Must(err)
	env.Must(rbac.BindIn(env.Ctx, env.Client, env.Namespace, env.DriverNamespace, guard.Name,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "power-cycling"}, Rules: remediationRules()}))
	return rules
}

// remediationRules returns the permissions for agents of the tests' own kind.
func remediationRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"fencing.test"}, Resources: []string{"powercyclingtemplates"}, Verbs: []string{"get"}},
		{APIGroups: []string{"fencing.test"}, Resources: []string{"powercyclings"},
			Verbs: []string{"get", "create", "delete"}},
	}
}

// guardSays reports whether volume-guard has logged a reason for waiting with the fence of a node.
func (env *environment) guardSays(node, reason string) bool {
	env.T.Helper()
	text, err := os.ReadFile(env.guard.LogPath())
	env.Must(err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, strconv.Quote(node)) && strings.Contains(line, strconv.Quote(reason)) {
			return true
		}
	}
	return false
}

// scenario returns the environment for a subtest, in a namespace of its own.
func (env *environment) scenario(t *testing.T) *environment {
	t.Helper()
	sub := *env
	sub.Environment = env.ForSubtest(t).InOtherNamespace()
	sub.holdPods()
	sub.grantAgents()
	return &sub
}

// scenario is one subtest.
type scenario struct {
	name string
	play func(*environment)
}

// run plays scenarios side by side.
func (env *environment) run(scenarios ...scenario) {
	env.T.Helper()
	fixture.SideBySide(env.T, sideBySide, scenarios, nil, func(s scenario) string { return s.name },
		func(t *testing.T, s scenario) { s.play(env.scenario(t)) })
}

// object returns the client of a kind of the tests, cluster-scoped for an empty namespace.
func (env *environment) object(group, version, resource, namespace string) dynamic.ResourceInterface {
	of := env.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	if namespace == "" {
		return of
	}
	return of.Namespace(namespace)
}

func conditionIsTrue(o *unstructured.Unstructured, kind string) bool {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, one := range all {
		if c, ok := one.(map[string]any); ok && c["type"] == kind && c["status"] == "True" {
			return true
		}
	}
	return false
}
