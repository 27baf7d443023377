//go:build linux

package nodes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// spare is the node of the agents and of all replacements. No test cuts it off alone.
const spare = "spare"

// fencing is the environment of a fencing scenario: a namespace that enforces pod safety, and its own node.
type fencing struct {
	*safety
	fences *client.Client
	agents *agents
	node   string
}

// startFencing starts the spare node and others, and volume-guard with pod safety and fencing.
func startFencing(t *testing.T, names ...string) *fencing {
	t.Helper()
	begun := time.Now()
	env := startNodes(t, "fence.csi-reclaimer.io", nodes.Options{Names: append(names, spare), Links: true},
		evicting()...)
	f := &fencing{safety: &safety{environment: env}}
	f.guard = env.startGuard([]string{"pod-safety", "node-fencing"},
		append(manifests.PodSafety(env.Plane.Version()), manifests.NodeFencing()...))
	var err error
	f.fences, err = client.New(env.Plane.Admin())
	f.Must(err)
	f.agents = f.startAgents()
	t.Logf("control plane, nodes, driver and volume-guard in %s", time.Since(begun).Round(100*time.Millisecond))
	return f
}

// evicting are arguments of the controller manager where scenarios cut off all nodes but one. By default, Kubernetes
// evicts the pods of one node every 10 seconds, and none while most nodes are not Ready. A rate of 1 is not taken up
// again after no node was Ready: a limiter that lets nothing pass says that its rate is 1
// (k8s.io/client-go/util/flowcontrol).
func evicting() []string {
	return []string{"--node-eviction-rate=10", "--unhealthy-zone-threshold=0.9"}
}

// scenario returns the environment with its own namespace, for one node, and cleans up at the end.
func (f *fencing) scenario(t *testing.T, node string) *fencing {
	t.Helper()
	sub := &fencing{safety: f.inNamespace(t, "enforce"), fences: f.fences, agents: f.agents, node: node}
	t.Cleanup(func() {
		sub.showFailure()
		sub.end()
	})
	return sub
}

// end ends the scenario: the node runs without a fence, and its pods are gone.
func (f *fencing) end() {
	ctx := f.CleanupContext()
	if f.T.Failed() {
		if fence, err := f.fences.Fences.Get(ctx, f.node, metav1.GetOptions{}); err == nil {
			f.T.Logf("NodeFence: %+v", fence.Status)
			f.unfence(ctx, v1alpha1.UnfenceAbandon)
		}
		list, err := f.Client.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{})
		f.Must(err)
		for i := range list.Items {
			f.confirm(ctx, &list.Items[i])
		}
	}
	node := f.pool.Node(f.node)
	f.Must(node.Connect())
	if node.Thaw(ctx) != nil {
		f.Must(node.Boot(ctx))
	}
	for _, delete := range []func() error{
		func() error { return f.fences.Policies.Delete(ctx, f.node, metav1.DeleteOptions{}) },
		func() error { return f.fences.Fences.Delete(ctx, f.node, metav1.DeleteOptions{}) },
		func() error {
			return f.Client.AppsV1().StatefulSets(f.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
				metav1.ListOptions{})
		},
	} {
		if err := delete(); !apierrors.IsNotFound(err) {
			f.Must(err)
		}
	}
	for {
		list, err := f.Client.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{})
		f.Must(err)
		_, err = f.fences.Fences.Get(ctx, f.node, metav1.GetOptions{})
		if len(list.Items) == 0 && apierrors.IsNotFound(err) {
			return
		}
		f.Must(f.Client.CoreV1().Pods(f.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		select {
		case <-ctx.Done():
			f.T.Errorf("%d pods are left, and of the fence: %v", len(list.Items), err)
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// agents fence nodes: the pods of agents ask a server of this test.
type agents struct {
	namespace string

	mu sync.Mutex
	do map[string]func(context.Context) error // by action and node
	// asked and done are when the server was last asked for an action on a node, and when it had done so.
	asked, done map[string]time.Time
}

// startAgents starts the server, and makes PodTemplates: "fencer" asks it, and "liar" says that it has fenced the node,
// and has done nothing.
func (f *fencing) startAgents() *agents {
	f.T.Helper()
	a := &agents{do: map[string]func(context.Context) error{}, asked: map[string]time.Time{},
		done: map[string]time.Time{}}
	server := httptest.NewServer(a)
	f.T.Cleanup(func() {
		server.CloseClientConnections() // an agent may hang
		server.Close()
	})
	var err error
	a.namespace, err = f.Plane.CreateNamespace(f.Ctx, "fencers")
	f.Must(err)
	f.allowJobs(a.namespace)
	f.installOperators(a.namespace)
	liar := nodes.WriterSpec()
	liar.RestartPolicy, liar.Containers[0].Args = v1.RestartPolicyNever, []string{"exit", "0"}
	for name, spec := range map[string]v1.PodSpec{"fencer": nodes.FencerSpec(server.URL), "liar": liar} {
		spec.NodeSelector = map[string]string{v1.LabelHostname: spare}
		_, err := f.Client.CoreV1().PodTemplates(a.namespace).Create(f.Ctx, &v1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Template: v1.PodTemplateSpec{Spec: spec}}, metav1.CreateOptions{})
		f.Must(err)
	}
	return a
}

// allowJobs lets volume-guard run Jobs in a namespace, as an operator does.
func (f *fencing) allowJobs(namespace string) {
	f.T.Helper()
	f.Must(manifests.Apply(f.Ctx, f.Plane.Admin(), "rbac-volume-guard-fence-agents.yaml"))
	f.Must(rbac.Bind(f.Ctx, f.Client, namespace, "fencing", "ClusterRole", "volume-guard-fence-agent-job", guardNamespace,
		fixture.VolumeGuardName))
}

// on has the server do this when a pod asks for an action ("fence") on a node.
func (a *agents) on(action, node string, do func(context.Context) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.do[action+" "+node] = do
}

// fenced returns when the server was last asked to fence a node, and when it had done so; zero for not yet.
func (a *agents) fenced(node string) (asked, done time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked["fence "+node], a.done["fence "+node]
}

func (a *agents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.FormValue("FENCE_ACTION") + " " + r.FormValue("FENCE_NODE")
	a.mu.Lock()
	do := a.do[what]
	a.asked[what] = time.Now()
	a.mu.Unlock()
	if do == nil {
		http.Error(w, "not known: "+what, http.StatusNotFound)
		return
	}
	if err := do(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	a.mu.Lock()
	a.done[what] = time.Now()
	a.mu.Unlock()
}

// agent returns an agent whose Job runs the pod of a PodTemplate.
func (f *fencing) agent(name, template string, covers v1alpha1.Coverage) v1alpha1.Agent {
	return v1alpha1.Agent{Name: name, Covers: covers, Timeout: metav1.Duration{Duration: time.Minute},
		Job: &v1alpha1.JobAgent{Namespace: f.agents.namespace, PodTemplateName: template}}
}

// patience is how long the policies of the tests wait, which is the shortest time that the API allows.
const patience = 40 * time.Second

// createPolicy has the node fenced once it is unreachable for long. Most nodes of the tests are cut off at once.
func (f *fencing) createPolicy(agents ...v1alpha1.Agent) {
	f.T.Helper()
	_, err := f.fences.Policies.Create(f.Ctx, &v1alpha1.FencePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: f.node},
		Spec: v1alpha1.FencePolicySpec{
			NodeSelector:     metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelHostname: f.node}},
			UnreachableAfter: metav1.Duration{Duration: patience}, Agents: agents,
			MaxFences: intstr.FromInt32(10), HaltAbove: 90,
		},
	}, metav1.CreateOptions{})
	f.Must(err)
}

// createFence has the node fenced at once.
func (f *fencing) createFence(agents ...v1alpha1.Agent) {
	f.T.Helper()
	_, err := f.fences.Fences.Create(f.Ctx, &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: f.node},
		Spec: v1alpha1.NodeFenceSpec{Reason: "a test", Agents: agents}}, metav1.CreateOptions{})
	f.Must(err)
}

// unfence says when the fence ends.
func (f *fencing) unfence(ctx context.Context, when v1alpha1.Unfence) {
	f.T.Helper()
	_, err := f.fences.Fences.Patch(ctx, f.node, types.MergePatchType,
		[]byte(`{"spec":{"unfence":"`+string(when)+`"}}`), metav1.PatchOptions{})
	f.Must(err)
}

// fence returns the node's fence, or an empty one if none exists.
func (f *fencing) fence() *v1alpha1.NodeFence {
	f.T.Helper()
	fence, err := f.fences.Fences.Get(f.Ctx, f.node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &v1alpha1.NodeFence{}
	}
	f.Must(err)
	return fence
}

// isTainted reports whether the node has a taint with this key, or any for "".
func (f *fencing) isTainted(key string) bool {
	f.T.Helper()
	node := f.Nodes().Get(f.node)
	return slices.ContainsFunc(node.Spec.Taints, func(taint v1.Taint) bool { return key == "" || taint.Key == key })
}

// startDatabase starts a StatefulSet of one pod that runs on the scenario's node while it can, and else on the spare
// one. Its pods tolerate for so long that their node is unreachable.
func (f *fencing) startDatabase(name string, tolerates time.Duration) *database {
	f.T.Helper()
	f.createStatefulSet(name, f.CreateStorageClass(), preferring(f.node, tolerates))
	return f.waitDatabase(name, f.node)
}

// preferring has a pod run on a node while it can, and else on the spare one. It tolerates for so long that its node is
// unreachable.
func preferring(node string, tolerates time.Duration) func(*v1.PodSpec) {
	on := func(names ...string) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: names}}}
	}
	return func(spec *v1.PodSpec) {
		spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{on(node, spare)}},
			PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{
				{Weight: 100, Preference: on(node)}},
		}}
		for _, key := range []string{v1.TaintNodeUnreachable, v1.TaintNodeNotReady} {
			spec.Tolerations = append(spec.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists,
				Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(tolerates.Seconds()))})
		}
	}
}

// waitFenceEvent waits for an Event about the node's fence.
func (f *fencing) waitFenceEvent(reason string) {
	f.T.Helper()
	f.until("Event "+reason+" about the NodeFence", func() bool {
		about := v1.ObjectReference{Namespace: metav1.NamespaceDefault, Kind: "NodeFence", Name: f.node}
		return len(f.Events(about, reason)) > 0
	})
}

// milestone is something that is reached once.
type milestone struct {
	what    string
	reached func() bool
	at      time.Time
}

// measure waits until all milestones are reached, and logs how long each took, from the one before it in time.
func (f *fencing) measure(what string, begun time.Time, all ...*milestone) {
	f.T.Helper()
	f.until(what, func() bool {
		done := true
		for _, m := range all {
			if m.at.IsZero() && m.reached() && m.at.IsZero() {
				m.at = time.Now()
			}
			done = done && !m.at.IsZero()
		}
		return done
	})
	slices.SortStableFunc(all, func(a, b *milestone) int { return a.at.Compare(b.at) })
	var parts []string
	before := begun
	for _, m := range all {
		parts = append(parts, m.what+" +"+m.at.Sub(before).Round(100*time.Millisecond).String())
		before = m.at
	}
	f.T.Logf("%s after %s: %s", what, before.Sub(begun).Round(100*time.Millisecond), strings.Join(parts, ", "))
}

// deleteFence deletes a NodeFence, as a health check does.
func (f *fencing) deleteFence(name string) {
	f.T.Helper()
	f.Must(f.fences.Fences.Delete(f.Ctx, name, metav1.DeleteOptions{}))
}

// passFence returns once volume-guard has ended a NodeFence that was deleted after all others.
func (f *fencing) passFence() {
	f.T.Helper()
	const none = "no-such-node"
	_, err := f.fences.Fences.Create(f.Ctx, &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: none},
		Spec: v1alpha1.NodeFenceSpec{Reason: "a canary", Agents: []v1alpha1.Agent{f.agent("power", "liar",
			v1alpha1.CoversUntilUnfenced)}}}, metav1.CreateOptions{})
	f.Must(err)
	get := func() (*v1alpha1.NodeFence, error) { return f.fences.Fences.Get(f.Ctx, none, metav1.GetOptions{}) }
	f.until("the canary is in hand", func() bool {
		fence, err := get()
		f.Must(err)
		return len(fence.Finalizers) > 0
	})
	f.deleteFence(none)
	f.until("the canary has ended", func() bool { _, err := get(); return apierrors.IsNotFound(err) })
}
