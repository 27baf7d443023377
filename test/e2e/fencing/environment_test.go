//go:build unix

package fencing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
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
	env.InstallDriver(nil)
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
	env.Namespaces().Label(env.Namespace, map[string]string{podsafety.NamespaceLabel: "enforce"})
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

// machine is a node that a test turns off and on again.
type machine struct {
	*environment
	name string
	// boots counts its boots, from 1.
	boots   int
	silence func()
}

// machine starts a node with these labels. prefix begins its name.
func (env *environment) machine(prefix string, labels map[string]string) *machine {
	env.T.Helper()
	m := &machine{environment: env, name: prefix + "-" + rand.String(5)}
	m.boot()
	m.Eventually("pods can be scheduled to node "+m.name, func() bool { return len(m.node().Spec.Taints) == 0 })
	if len(labels) == 0 {
		return m
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	env.Must(err)
	env.Nodes().Merge(m.name, string(patch)) // a node may not say of itself that it is one of the control plane
	return m
}

// boot has the node come up with another boot ID, and waits until it is registered.
func (m *machine) boot() {
	m.T.Helper()
	m.boots++
	m.resume()
}

// resume brings the node back unchanged, like a node that was cut off.
func (m *machine) resume() {
	m.T.Helper()
	_, m.silence = fakenode.ForTest(m.T, m.Plane, m.name,
		fakenode.Config{Heartbeat: heartbeat, BootID: m.bootID()})
}

func (m *machine) bootID() string { return m.name + "-boot-" + strconv.Itoa(m.boots) }

// lose has the node fall silent, and waits until the controller manager has found it unreachable.
func (m *machine) lose() {
	m.T.Helper()
	m.silence()
	m.waitReady(v1.ConditionUnknown)
}

func (m *machine) waitReady(status v1.ConditionStatus) {
	m.T.Helper()
	m.Eventually("condition Ready of node "+m.name+" is "+string(status), func() bool {
		return readiness(m.node()) == status
	})
}

func readiness(node *v1.Node) v1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func (m *machine) node() *v1.Node {
	m.T.Helper()
	return m.Nodes().Get(m.name)
}

// isTainted reports whether a node has the taint of volume-guard.
func isTainted(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeOutOfService && t.Value == ownTaint
	})
}

// isShunned reports whether a node has the taint that keeps new pods away.
func isShunned(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == "csi-reclaimer.io/volumes-fenced" && t.Effect == v1.TaintEffectNoSchedule
	})
}

func (m *machine) waitTainted(want bool) {
	m.T.Helper()
	m.Eventually("the taint of node "+m.name+" is there: "+strconv.FormatBool(want),
		func() bool { return isTainted(m.node()) == want })
}

// workload is a StatefulSet of one with a claim. Its pod runs on one machine, and on the spare one when that is away.
type workload struct {
	*environment
	on   *machine
	name string
	// first is the pod that runs on the machine.
	first  types.UID
	volume *objects.Volume
}

// workload creates a StatefulSet, and waits until its pod runs on the machine, and is held where volume-guard holds
// pods.
func (env *environment) workload(on *machine, changes ...func(*v1.PodTemplateSpec)) *workload {
	env.T.Helper()
	w := &workload{environment: env, on: on, name: "web-" + rand.String(5)}
	w.volume = env.MakeVolume(objects.Spec{Handle: w.name, Policy: v1.PersistentVolumeReclaimRetain})
	template := w.template()
	for _, change := range changes {
		change(&template)
	}
	env.StatefulSets().Create(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec: appsv1.StatefulSetSpec{ServiceName: w.name, Template: template,
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels}},
	})
	env.Eventually("the pod of "+w.name+" runs on "+on.name, func() bool {
		pod := w.pod()
		return runs(pod, on.name) && (isHeld(pod) || !env.holds)
	})
	w.first = w.pod().UID
	return w
}

// lost returns a machine that is lost, and its workload.
func (env *environment) lost(name string, changes ...func(*v1.PodTemplateSpec)) (*machine, *workload) {
	env.T.Helper()
	m := env.machine(name, nil)
	w := env.workload(m, changes...)
	m.lose()
	return m, w
}

func (w *workload) template() v1.PodTemplateSpec {
	hosts := func(names ...string) []v1.NodeSelectorRequirement {
		return []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: names}}
	}
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": w.name}},
		Spec: v1.PodSpec{
			Containers:                    []v1.Container{{Name: "main", Image: "none"}},
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			Volumes:                       []v1.Volume{objects.ClaimVolume("data", w.volume.ClaimName)},
			Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: hosts(w.on.name, w.spare.name)}}},
				PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 100,
					Preference: v1.NodeSelectorTerm{MatchExpressions: hosts(w.on.name)}}},
			}},
		},
	}
}

// impatient has pods deleted as soon as their node is unreachable.
func impatient(template *v1.PodTemplateSpec) {
	for _, key := range []string{v1.TaintNodeUnreachable, v1.TaintNodeNotReady} {
		template.Spec.Tolerations = append(template.Spec.Tolerations, v1.Toleration{Key: key,
			Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](0)})
	}
}

// pod returns the set's pod, nil for none.
func (w *workload) pod() *v1.Pod {
	w.T.Helper()
	return w.Pods().Find(w.name + "-0")
}

func runs(pod *v1.Pod, node string) bool {
	return pod != nil && pod.Spec.NodeName == node && pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil
}

func isHeld(pod *v1.Pod) bool {
	return pod != nil && slices.Contains(pod.Finalizers, records.RunningFinalizer)
}

// waitTerminating waits until the first pod was deleted, and is held.
func (w *workload) waitTerminating() {
	w.T.Helper()
	w.Eventually("the pod of "+w.name+" is terminating", func() bool { return w.expectHeld().DeletionTimestamp != nil })
}

// waitReplaced waits until another pod of the set runs on one of these nodes.
func (w *workload) waitReplaced(nodes ...string) {
	w.T.Helper()
	var pod *v1.Pod
	if !w.Happens(func() bool {
		if pod = w.pod(); pod != nil && pod.UID != w.first {
			w.touch(pod)
		}
		is := func(node string) bool { return runs(pod, node) && pod.UID != w.first }
		return slices.ContainsFunc(nodes, is)
	}) {
		w.T.Fatalf("another pod of %s never runs on %s: %+v", w.name, nodes, pod)
	}
}

// touch changes a pod that kube-scheduler has not looked at for 10 seconds. If a pod replaces one of the same name
// while the scheduler does not reach the API server, version 1.37 takes the new pod for an assigned one, and queues it
// only once it changes again (updatePod in pkg/scheduler).
func (w *workload) touch(pod *v1.Pod) {
	w.T.Helper()
	age := time.Since(pod.CreationTimestamp.Time)
	if pod.Spec.NodeName != "" || len(pod.Status.Conditions) > 0 || age < 10*time.Second {
		return
	}
	w.T.Logf("the scheduler does not know pod %s", pod.Name)
	w.Pods().Patch(pod.Name, fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}}}`, pod.ResourceVersion))
}

// expectHeld checks that the first pod is there, and held, and returns it.
func (w *workload) expectHeld() *v1.Pod {
	w.T.Helper()
	pod := w.pod()
	if pod == nil || pod.UID != w.first || !isHeld(pod) {
		w.T.Fatalf("WRONG RELEASE: the pod of %s on node %s is gone or released: %+v", w.name, w.on.name, pod)
	}
	return pod
}
