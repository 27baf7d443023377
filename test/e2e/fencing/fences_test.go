//go:build unix

package fencing

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// fence is the NodeFence of a machine.
type fence struct {
	*environment
	of   *machine
	name string
	uid  types.UID
}

// fence asks by hand for the fence of a machine by these agents.
func (env *environment) fence(m *machine, agents ...v1alpha1.Agent) *fence {
	env.T.Helper()
	return env.fenceWith(m, v1alpha1.NodeFenceSpec{Reason: "test", Agents: agents})
}

func (env *environment) fenceWith(m *machine, spec v1alpha1.NodeFenceSpec) *fence {
	env.T.Helper()
	o, err := env.fences.Fences.Create(env.Ctx, &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec: spec}, metav1.CreateOptions{})
	env.Must(err)
	return &fence{environment: env, of: m, name: o.Name, uid: o.UID}
}

// get returns the NodeFence, or nil if it is gone.
func (f *fence) get() *v1alpha1.NodeFence {
	f.T.Helper()
	o, err := f.fences.Fences.Get(f.Ctx, f.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.Must(err)
	if o.UID != f.uid {
		return nil
	}
	return o
}

// wait waits until the NodeFence is as wanted, and returns it.
func (f *fence) wait(what string, want func(*v1alpha1.NodeFence) bool) (now *v1alpha1.NodeFence) {
	f.T.Helper()
	if !f.Happens(func() bool { now = f.get(); return now != nil && want(now) }) {
		f.T.Fatalf("NodeFence %s is never %s: %s", f.name, what, describe(now))
	}
	return now
}

func describe(o *v1alpha1.NodeFence) string {
	if o == nil {
		return "it is gone"
	}
	text, err := json.Marshal(o.Status)
	return fmt.Sprintf("%s %v", text, err)
}

func (f *fence) waitPhase(phase v1alpha1.Phase) *v1alpha1.NodeFence {
	f.T.Helper()
	return f.wait(string(phase), func(o *v1alpha1.NodeFence) bool { return o.Status.Phase == phase })
}

// waitFenced waits until an agent has proven that the node is fenced, and checks which.
func (f *fence) waitFenced(agent string) {
	f.T.Helper()
	o := f.wait("fenced", isFenced)
	if o.Status.Proof == nil || o.Status.Proof.Agent != agent {
		f.T.Errorf("NodeFence %s is proven by another agent than %s: %s", f.name, agent, describe(o))
	}
}

func isFenced(o *v1alpha1.NodeFence) bool {
	return meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionFenced)
}

// waitReturned waits until the fence has ended, and checks why, and that nothing of it is left on the node.
func (f *fence) waitReturned(reasons ...string) *v1alpha1.NodeFence {
	f.T.Helper()
	o := f.waitPhase(v1alpha1.PhaseReturned)
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReturned)
	if c == nil || !slices.Contains(reasons, c.Reason) || isFenced(o) ||
		meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReleased) {
		f.T.Errorf("NodeFence %s has not ended as %q: %s", f.name, reasons, describe(o))
	}
	if isTainted(f.of.node()) {
		f.T.Errorf("node %s has returned and is tainted", f.name)
	}
	return o
}

func (f *fence) waitGone() {
	f.T.Helper()
	f.Eventually("NodeFence "+f.name+" is gone", func() bool { return f.get() == nil })
}

// patch merges into the spec.
func (f *fence) patch(spec string) {
	f.T.Helper()
	_, err := f.fences.Fences.Patch(f.Ctx, f.name, types.MergePatchType, []byte(`{"spec":`+spec+`}`),
		metav1.PatchOptions{})
	f.Must(err)
}

// confirm gives a person's word about this very NodeFence.
func (f *fence) confirm(words string) {
	f.T.Helper()
	f.patch(fmt.Sprintf(`{"confirmation":%q,"confirmationUID":%q}`, words, f.get().UID))
}

// delete deletes the NodeFence, as kubectl delete --wait=false does.
func (f *fence) delete() {
	f.T.Helper()
	f.Must(f.fences.Fences.Delete(f.Ctx, f.name, metav1.DeleteOptions{}))
}

// expectAttempts checks the attempts, each as "agent: result".
func (f *fence) expectAttempts(want ...string) {
	f.T.Helper()
	o := f.get()
	var got []string
	for _, a := range o.Status.Attempts {
		got = append(got, a.Agent+": "+string(a.Result))
	}
	if !slices.Equal(got, want) {
		f.T.Errorf("NodeFence %s has the attempts %q, want %q: %s", f.name, got, want, describe(o))
	}
}

// expectNotReleased checks that nothing was released: the node is not tainted, and the pod is held.
func (f *fence) expectNotReleased(w *workload) {
	f.T.Helper()
	if isTainted(f.of.node()) {
		f.T.Errorf("WRONG RELEASE: node %s is tainted", f.name)
	}
	w.expectHeld()
}

// waitEvent waits for an Event on the NodeFence.
func (f *fence) waitEvent(reason, text string) {
	f.T.Helper()
	f.waitEventOn("NodeFence", f.name, reason, text)
}

// waitEventOn waits for an Event on a cluster-scoped object.
func (env *environment) waitEventOn(kind, name, reason, text string) {
	env.T.Helper()
	env.WaitEvent(v1.ObjectReference{Namespace: metav1.NamespaceDefault, Kind: kind, Name: name}, reason, text)
}
