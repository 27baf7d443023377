package locks

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

var (
	now, ago, expect = explained.Now, explained.Ago, explained.Expect
	errForbidden     = explained.ErrForbidden
)

// environment is a namespace in which all claims are locked. Pod old runs on node n1 and has the lock of claim data;
// pod new waits for it.
type environment struct {
	claim    *v1.PersistentVolumeClaim
	old, new *v1.Pod
	// more holds other pods, and claims holds other claims.
	more   []*v1.Pod
	claims []*v1.PersistentVolumeClaim
	node   *v1.Node
	facts  Facts
}

func newEnvironment() *environment {
	env := &environment{claim: claim("data", "old"), old: pod("old", "data"), new: pod("new", "data"),
		node: explained.Node("n1", v1.ConditionTrue)}
	env.run(env.old)
	env.gate(env.new)
	env.facts.Namespaces = mode(singlenode.AllValue)
	env.facts.Fences = explain.Found(map[string]*v1alpha1.NodeFence{})
	env.facts.Guards = explain.Found([]coordinationv1.Lease{*explained.Lease("volume-guard", "guard-0", 0)})
	return env
}

func plain() environment { return *newEnvironment() }

// mode returns the labels of a namespace that asks for locks.
func mode(value string) explain.Read[map[string]map[string]string] {
	return explain.Found(map[string]map[string]string{"shop": {singlenode.Label: value}})
}

// claim is a bound claim that the pod holder has locked; an empty holder means no lock.
func claim(name, holder string) *v1.PersistentVolumeClaim {
	o := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("claim-" + name), ResourceVersion: "1"},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name, StorageClassName: ptr.To("nfs"),
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}}}
	if holder != "" {
		lock(o, "pod-"+holder+" "+holder)
	}
	return o
}

// lock sets a lock that volume-guard wrote an hour ago.
func lock(o *v1.PersistentVolumeClaim, value string) {
	o.Annotations = map[string]string{singlenode.LockAnnotation: value}
	o.Finalizers = []string{singlenode.Finalizer}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "other", Time: ptr.To(ago(time.Minute)),
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)}, {
		Manager: "volume-guard", Time: ptr.To(ago(time.Hour)),
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:csi-reclaimer.io/used-by":{}}}}`)}}
}

// pod is a held pod with claims, created two hours ago.
func pod(name string, claims ...string) *v1.Pod {
	o := explained.Pod("shop", name, claims...)
	o.CreationTimestamp, o.Finalizers, o.Generation = ago(2*time.Hour), []string{objects.RunningFinalizer}, 1
	o.Spec.Containers, o.Status.Phase = []v1.Container{{Name: "main"}}, v1.PodPending
	return o
}

// run starts a pod on node n1.
func (env *environment) run(o *v1.Pod) {
	o.Spec.NodeName, o.Status.Phase = "n1", v1.PodRunning
	o.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main",
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
}

// gate gates a pod that was created 5 minutes ago.
func (env *environment) gate(o *v1.Pod) {
	o.CreationTimestamp = ago(5 * time.Minute)
	o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: singlenode.Gate}}
}

func (env *environment) add(name string, claims ...string) *v1.Pod {
	o := pod(name, claims...)
	env.gate(o)
	env.more = append(env.more, o)
	return o
}

// terminate deletes a pod 10 minutes ago.
func terminate(o *v1.Pod) {
	o.DeletionTimestamp, o.DeletionGracePeriodSeconds = ptr.To(ago(10*time.Minute)), ptr.To[int64](30)
	o.Generation++
}

// complete lets the kubelet report the end of the pod.
func complete(o *v1.Pod) {
	o.Status.Phase = v1.PodSucceeded
	o.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
}

// down makes the node unreachable.
func (env *environment) down() { env.node.Status.Conditions[0].Status = v1.ConditionUnknown }

// away stops volume-guard.
func (env *environment) away() { explained.Clear(&env.facts.Guards) }

// read returns the facts as they are read.
func (env *environment) read() Facts {
	f := env.facts
	f.Now = now()
	f.Claims, f.Pods = explain.Found[[]Claim](nil), explain.Found[[]explain.Pod](nil)
	for _, o := range append(env.claims, env.claim) {
		if o != nil {
			f.Claims.Value = append(f.Claims.Value, ClaimOf(o))
		}
	}
	for _, o := range append(env.more, env.old, env.new) {
		if o != nil {
			f.Pods.Value = append(f.Pods.Value, explain.PodOf(o))
		}
	}
	if !f.Nodes.Made {
		f.Nodes = explain.Found(map[string]*v1.Node{"n1": env.node})
	}
	return f
}

// podFacts returns the facts of a pod as they are read.
func (env *environment) podFacts(o *v1.Pod) pods.Facts {
	return pods.Facts{Now: now(), Pod: o, Guards: env.facts.Guards,
		OnNode: pods.OnNode{Node: explain.Found(env.node), Fence: explain.Found[*v1alpha1.NodeFence](nil)},
		Claims: map[string]explain.Read[*v1.PersistentVolumeClaim]{"data": explain.Found(env.claim)},
		Namespace: explain.Found(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop",
			Labels: map[string]string{podsafety.NamespaceLabel: podsafety.EnforceValue}}}),
		Pods: explain.Found(env.read().Pods.Value), Events: explain.Found[[]v1.Event](nil)}
}
