package agents

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// bench is a cluster in memory, or a namespace of a real API server (apiserver_test.go).
type bench struct {
	*testing.T
	*Runner
	namespace, node string
	fence           types.UID
}

// Kinds of other projects that agents use.
const (
	remediationVersion  = "remediation.example.com/v1alpha1"
	farVersion, farKind = "fence-agents-remediation.medik8s.io/v1alpha1", "FenceAgentsRemediation"
)

// customKinds reports for each kind of custom resources whether it is namespaced.
var customKinds = map[schema.GroupVersionKind]bool{
	schema.FromAPIVersionAndKind(remediationVersion, "Remediation"):         true,
	schema.FromAPIVersionAndKind(remediationVersion, "RemediationTemplate"): true,
	schema.FromAPIVersionAndKind(farVersion, farKind):                       true,
	schema.FromAPIVersionAndKind(farVersion, farKind+"Template"):            true,
	schema.FromAPIVersionAndKind(csiAddonsVersion, "CSIAddonsNode"):         true,
	schema.FromAPIVersionAndKind(csiAddonsVersion, "NetworkFence"):          false,
	schema.FromAPIVersionAndKind(csiAddonsVersion, "NetworkFenceClass"):     false,
}

// without returns a mapper of all kinds but one.
func without(missing string) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for kind, namespaced := range customKinds {
		if kind.Kind == missing {
			continue
		}
		m.Add(kind, map[bool]meta.RESTScope{false: meta.RESTScopeRoot, true: meta.RESTScopeNamespace}[namespaced])
	}
	return m
}

func newBench(t *testing.T) *bench {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	for kind := range customKinds {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		lists[resource] = kind.Kind + "List"
	}
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	b := &bench{T: t, namespace: "fencing", node: "node-1", fence: "fence-uid",
		Runner: NewRunner(fake.NewClientset(), objects, without(""))}
	return b.prepare()
}

// prepare creates the objects that agents need: a PodTemplate, and a node until the end of the test, because two nodes
// with one address are not fenced by it.
func (b *bench) prepare() *bench {
	b.Helper()
	b.Cleanup(func() {
		err := b.clients.CoreV1().Nodes().Delete(context.WithoutCancel(b.Context()), b.node, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			b.Error(err)
		}
	})
	_, err := b.clients.CoreV1().Nodes().Create(b.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node},
		Spec:   v1.NodeSpec{ProviderID: "cloud://1"},
		Status: v1.NodeStatus{Addresses: []v1.NodeAddress{internalIP("10.0.0.7")}}}, metav1.CreateOptions{})
	b.must(err)
	b.template("power", func(*v1.PodSpec) {})
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// ask is the Ask of a session for an agent, in its first attempt.
func (b *bench) ask(agent v1alpha1.Agent, alter ...func(*fencing.Ask)) fencing.Ask {
	agent.Timeout.Duration = 5 * time.Minute
	a := fencing.Ask{Node: b.node, UID: b.fence, Agent: agent, Run: fencing.Run{Attempt: 1, Agent: agent.Name}}
	for _, change := range alter {
		change(&a)
	}
	return a
}

func undo(a *fencing.Ask)       { a.Run.Undo, a.Run.Try = true, 1 }
func again(a *fencing.Ask)      { a.Run.Undo, a.Run.Try = true, 2 }
func second(a *fencing.Ask)     { a.Run.Attempt = 2 }
func otherFence(a *fencing.Ask) { a.UID = "other" }
func otherAgent(a *fencing.Ask) { a.Agent.Name = "other" }

// state checks the state of a run, and returns its facts.
func (b *bench) state(ask fencing.Ask, want fencing.RunState, words string) fencing.RunFacts {
	b.Helper()
	got := b.Read(b.Context(), ask)
	if got.State != want || !strings.Contains(got.Message, words) {
		b.Fatalf("state %d (%q), want %d (%q)", got.State, got.Message, want, words)
	}
	return got
}

// fails checks that a call fails, and that the error names its subject.
func (b *bench) fails(err error, words string) {
	b.Helper()
	if err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), `NodeFence "`+b.node+`"`) {
		b.Fatalf("the error is %v, want %q", err, words)
	}
}

// resource returns a client of a kind of custom resources.
func (b *bench) resource(apiVersion, kind string) dynamic.ResourceInterface {
	b.Helper()
	of := schema.FromAPIVersionAndKind(apiVersion, kind)
	resource, _ := meta.UnsafeGuessKindToResource(of)
	if customKinds[of] {
		return b.dynamic.Resource(resource).Namespace(b.namespace)
	}
	return b.dynamic.Resource(resource)
}

// create creates a custom resource, and returns it.
func (b *bench) create(apiVersion, kind, name string, content map[string]any) *unstructured.Unstructured {
	b.Helper()
	o := &unstructured.Unstructured{Object: content}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	if customKinds[o.GroupVersionKind()] {
		o.SetNamespace(b.namespace)
	}
	o, err := b.resource(apiVersion, kind).Create(b.Context(), o, metav1.CreateOptions{})
	b.must(err)
	return o
}

// get returns a custom resource, or nil.
func (b *bench) get(apiVersion, kind, name string) *unstructured.Unstructured {
	b.Helper()
	list, err := b.resource(apiVersion, kind).List(b.Context(), metav1.ListOptions{})
	b.must(err)
	for i := range list.Items {
		if list.Items[i].GetName() == name {
			return &list.Items[i]
		}
	}
	return nil
}

// update changes a custom resource.
func (b *bench) update(apiVersion, kind, name string, change func(*unstructured.Unstructured)) {
	b.Helper()
	o := b.get(apiVersion, kind, name)
	if o == nil {
		b.Fatalf("there is no %s %s", kind, name)
	}
	change(o)
	_, err := b.resource(apiVersion, kind).Update(b.Context(), o, metav1.UpdateOptions{})
	b.must(err)
}

// vanish removes a custom resource with all its finalizers.
func (b *bench) vanish(apiVersion, kind, name string) {
	b.Helper()
	if b.get(apiVersion, kind, name).GetFinalizers() != nil {
		b.update(apiVersion, kind, name, func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })
	}
	if b.get(apiVersion, kind, name) != nil {
		b.must(b.resource(apiVersion, kind).Delete(b.Context(), name, metav1.DeleteOptions{}))
	}
}

// fail makes calls of the cluster in memory fail.
func (b *bench) fail(verb, resource string) { b.refuse(verb, resource, errors.New("no answer")) }

// refuse makes the cluster in memory answer calls with an error.
func (b *bench) refuse(verb, resource string, err error) {
	for _, c := range []interface {
		PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
	}{b.clients.(*fake.Clientset), b.dynamic.(*dynamicfake.FakeDynamicClient)} {
		c.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
}

// deletions returns the options of the deletions in memory.
func (b *bench) deletions() (options []metav1.DeleteOptions) {
	for _, actions := range [][]clienttesting.Action{
		b.clients.(*fake.Clientset).Actions(), b.dynamic.(*dynamicfake.FakeDynamicClient).Actions(),
	} {
		for _, a := range actions {
			if d, ok := a.(clienttesting.DeleteAction); ok {
				options = append(options, d.GetDeleteOptions())
			}
		}
	}
	return options
}

// lives are parts of the lives of agents, which pass in memory and on an API server.
var lives = map[string]func(*bench){
	"a Job is started once and stopped":                   jobIsStartedOnceAndStopped,
	"the next try to undo does not wait for the previous": nextUndoDoesNotWaitForPrevious,
	"a Job has states":                                    jobStates,
	"a foreign Job is left alone":                         foreignJobIsLeftAlone,
	"a remediation is started once":                       remediationIsStartedOnce,
	"each attempt has its own remediation":                eachAttemptHasItsOwnRemediation,
	"a remediation is undone by its deletion":             remediationIsUndoneByDeletion,
	"a foreign remediation is left alone":                 foreignRemediationIsLeftAlone,
	"a NetworkFence is started once":                      networkFenceIsStartedOnce,
	"a NetworkFence is undone":                            networkFenceIsUndone,
	"a stopped NetworkFence is unfenced":                  stoppedNetworkFenceIsUnfenced,
	"a foreign NetworkFence is left alone":                foreignNetworkFenceIsLeftAlone,
}

func TestAgents(t *testing.T) {
	for name, life := range lives {
		t.Run(name, func(t *testing.T) { life(newBench(t)) })
	}
}

func TestAgentWithoutKind(t *testing.T) {
	b := newBench(t)
	ask := b.ask(v1alpha1.Agent{Name: "by-hand", Manual: &v1alpha1.ManualAgent{}})
	b.state(ask, fencing.RunUnknown, "neither job nor remediation nor networkFence")
	b.fails(b.Start(t.Context(), ask), `start agent "by-hand"`)
	b.fails(b.Stop(t.Context(), ask), `stop agent "by-hand"`)
}

// Another process has done the same between our read and our write.
func TestConcurrentStartAndStopSucceed(t *testing.T) {
	b := newBench(t)
	job, remedy, storage := b.ask(b.job("power")), b.ask(b.remedy()), b.ask(b.storage("class"))
	b.must(b.Start(t.Context(), job))
	b.must(b.Start(t.Context(), remedy))
	for _, resource := range []schema.GroupResource{
		{Group: "batch", Resource: "jobs"}, {Group: "remediation.example.com", Resource: "remediations"},
	} {
		name := map[string]string{"jobs": jobs{}.name(job), "remediations": b.node}[resource.Resource]
		b.refuse("delete", resource.Resource, apierrors.NewNotFound(resource, name))
	}
	b.must(b.Stop(t.Context(), job))
	b.must(b.Stop(t.Context(), remedy))
	b.vanishes(remedy)
	for _, resource := range []string{"jobs", "remediations", "networkfences"} {
		b.refuse("create", resource, apierrors.NewAlreadyExists(schema.GroupResource{Resource: resource}, "x"))
	}
	b.must(b.Start(t.Context(), b.ask(b.job("power"), second)))
	b.must(b.Start(t.Context(), remedy))
	b.must(b.Start(t.Context(), storage))
}

// vanishes makes the cluster in memory lose the custom resource of a run.
func (b *bench) vanishes(ask fencing.Ask) {
	b.refuse("get", "remediations", apierrors.NewNotFound(
		schema.GroupResource{Group: "remediation.example.com", Resource: "remediations"}, ask.Node))
}

// Cluster-scoped kinds ignore the namespace of an agent.
func TestClusterScopedKindIgnoresNamespace(t *testing.T) {
	b := newBench(t)
	b.storage("class")
	_, o, err := b.object(t.Context(), csiAddonsVersion, "NetworkFenceClass", "elsewhere", "class")
	if err != nil || o == nil {
		t.Errorf("%v, %v", o, err)
	}
}

// Each object has a name that no other object of this project has.
func TestObjectNamesAreUnique(t *testing.T) {
	b := newBench(t)
	agent := v1alpha1.Agent{Name: "power"}
	seen := map[string]string{}
	for what, name := range map[string]string{
		"job":              jobs{}.name(b.ask(agent)),
		"undo":             jobs{}.name(b.ask(agent, undo)),
		"second try":       jobs{}.name(b.ask(agent, again)),
		"second attempt":   jobs{}.name(b.ask(agent, second)),
		"other fence":      jobs{}.name(b.ask(agent, otherFence)),
		"network fence":    networkFences{}.name(b.ask(agent)),
		"of other agent":   networkFences{}.name(b.ask(agent, otherAgent)),
		"of other fence":   networkFences{}.name(b.ask(agent, otherFence)),
		"of no attempt":    jobs{}.name(fencing.Ask{}),
		"of no agent":      networkFences{}.name(fencing.Ask{}),
		"of other attempt": jobs{}.name(b.ask(agent, second, otherFence)),
	} {
		if other, taken := seen[name]; taken || len(name) > 63 {
			t.Errorf("%s and %s are called %s", what, other, name)
		}
		seen[name] = what
	}
	before := func(a *fencing.Ask) { a.Run.Undo = true } // from a version without numbered tries
	if a, c := (jobs{}).name(b.ask(agent, before)), (jobs{}).name(b.ask(agent, undo)); a != c {
		t.Errorf("the first try to undo is called %s, and %s by earlier versions", c, a)
	}
	if a, c := (networkFences{}).name(b.ask(agent, second, undo)), (networkFences{}).name(b.ask(agent)); a != c {
		t.Errorf("the attempts of an agent use %s and %s", a, c)
	}
}
