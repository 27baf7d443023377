//go:build unix

package upgrade

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// The API of volume-guard, as operators know it. Its names are spelled out, so that a version that changes one fails.
const (
	singleNodeLabel = "csi-reclaimer.io/single-node"
	gateName        = "csi-reclaimer.io/volume"
	lockAnnotation  = "csi-reclaimer.io/used-by"
	graceAnnotation = "csi-reclaimer.io/scale-down-grace"
	ownTaint        = "csi-reclaimer"
)

func held(pod *v1.Pod) bool {
	return pod != nil && slices.Contains(pod.Finalizers, records.RunningFinalizer)
}

func gated(pod *v1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Spec.SchedulingGates,
		func(g v1.PodSchedulingGate) bool { return g.Name == gateName })
}

// label labels the namespace, and waits until pods are created accordingly.
func (env *cluster) label(labels map[string]string) {
	env.T.Helper()
	env.Namespaces().Label(env.Namespace, labels)
	if len(labels) == 0 {
		return
	}
	probe := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "main", Image: "none"}},
		Volumes:    []v1.Volume{objects.ClaimVolume("data", "probe")},
	}}
	env.Eventually("pods are held, and gated as the namespace asks", func() bool {
		made, err := env.Pods().DryRun(probe)
		return err == nil && held(made) && gated(made) == (labels[singleNodeLabel] != "")
	})
}

// safely returns the labels of namespaces with held pods.
func safely() map[string]string { return map[string]string{podsafety.NamespaceLabel: "enforce"} }

// alone returns the labels of namespaces with held pods that also wait for the locks of their claims.
func alone() map[string]string {
	return map[string]string{podsafety.NamespaceLabel: "enforce", singleNodeLabel: "all"}
}

// staticClaim is a claim with a volume that no driver has.
func (env *cluster) staticClaim() string {
	env.T.Helper()
	return env.MakeVolume(objects.Spec{Handle: "none-" + rand.String(8),
		Policy: v1.PersistentVolumeReclaimRetain}).ClaimName
}

// pod creates a pod that uses a claim on a node.
func (env *cluster) pod(claim, node string) *objects.Pod {
	env.T.Helper()
	pod := env.CreatePod(objects.PodSpec{Name: "pod-" + rand.String(8), Claims: []string{claim},
		Selector: map[string]string{v1.LabelHostname: node}, Change: func(pod *v1.Pod) {
			pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](5)
		}})
	return pod
}

// runningPod is pod, and waits until it runs and is held.
func (env *cluster) runningPod(claim, node string) *objects.Pod {
	env.T.Helper()
	pod := env.pod(claim, node)
	env.WaitRunning(pod)
	return pod
}

// expectPod checks the current pod.
func (env *cluster) expectPod(pod *objects.Pod, what string, want func(*v1.Pod) bool) {
	env.T.Helper()
	if now, err := pod.Get(env.Ctx); err != nil || now == nil || !want(now) {
		env.T.Errorf("WRONG RELEASE: pod %s is not %s: %v, %+v", pod.Name, what, err, now)
	}
}

// waitEvent waits for an Event with a reason about an object of the namespace.
func (env *cluster) waitEvent(kind, name, reason string) {
	env.T.Helper()
	env.WaitEvent(v1.ObjectReference{Kind: kind, Name: name}, reason)
}

// machine is a node that a test turns off and on again.
type machine struct {
	*cluster
	name    string
	boots   int
	silence func()
}

func (env *cluster) machine() *machine {
	env.T.Helper()
	m := &machine{cluster: env, name: "node-" + rand.String(5)}
	m.boot()
	m.Eventually("pods can be scheduled to node "+m.name, func() bool { return len(m.node().Spec.Taints) == 0 })
	return m
}

func (m *machine) boot() {
	m.T.Helper()
	m.boots++
	_, m.silence = fakenode.ForTest(m.T, m.Plane, m.name, fakenode.Config{WaitForClaims: true,
		BootID: fmt.Sprintf("%s-boot-%d", m.name, m.boots)})
}

// waitAway waits until the machine is found to be silent.
func (m *machine) waitAway() {
	m.T.Helper()
	m.Eventually("node "+m.name+" is away", func() bool {
		return slices.ContainsFunc(m.node().Status.Conditions, func(c v1.NodeCondition) bool {
			return c.Type == v1.NodeReady && c.Status == v1.ConditionUnknown
		})
	})
}

func (m *machine) node() *v1.Node {
	m.T.Helper()
	return m.Nodes().Get(m.name)
}

func (m *machine) tainted() bool {
	return slices.ContainsFunc(m.node().Spec.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeOutOfService && t.Value == ownTaint
	})
}

// podOn has a pod run on a machine, which falls silent then.
func (env *cluster) podOn(m *machine) (in *cluster, pod *objects.Pod) {
	env.T.Helper()
	in = env.inNamespace(safely())
	pod = in.runningPod(in.staticClaim(), m.name)
	m.silence()
	return in, pod
}

// heldPod is a pod that was deleted on a node that is away, and stays until a person confirms its end.
func (env *cluster) heldPod(m *machine) waiting {
	in, pod := env.podOn(m)
	m.waitAway()
	in.Must(pod.Delete(in.Ctx))
	in.waitEvent("Pod", pod.Name, "NodeUnreachable")
	return waiting{
		kept: func() {
			in.expectPod(pod, "terminating and held", func(now *v1.Pod) bool {
				return held(now) && now.DeletionTimestamp != nil
			})
		},
		end: func() {
			in.Pods().Annotate(pod.Name, records.ConfirmAnnotation, string(pod.UID))
			in.Must(pod.WaitGone(in.WithTimeout()))
		},
	}
}

// gatedPod is a pod that waits for another pod's lock of a claim.
func (env *cluster) gatedPod() waiting {
	m, in := env.machine(), env.inNamespace(alone())
	claim := in.staticClaim()
	first := in.runningPod(claim, m.name)
	second := in.pod(claim, m.name)
	in.waitEvent("Pod", second.Name, "ClaimInUse")
	expectLock := func(holder *objects.Pod) {
		in.T.Helper()
		if lock := string(holder.UID) + " " + holder.Name; in.lockOf(claim) != lock {
			in.T.Errorf("claim %s is locked for %q, want %q", claim, in.lockOf(claim), lock)
		}
	}
	return waiting{
		kept: func() {
			in.expectPod(first, "held", held)
			in.expectPod(second, "gated", gated)
			expectLock(first)
		},
		end: func() {
			in.Must(first.Delete(in.Ctx))
			in.WaitRunning(second)
			expectLock(second)
			in.Must(second.Delete(in.Ctx))
			in.Must(second.WaitGone(in.WithTimeout()))
		},
	}
}

// lockOf returns the value of a claim's lock: the UID and the name of its pod.
func (env *cluster) lockOf(claim string) string {
	env.T.Helper()
	return env.Claims().Get(claim).Annotations[lockAnnotation]
}

// expectReleasesEvidence has a pod use a claim alone and end, so that the replica that leads holds, locks and releases.
func (env *cluster) expectReleasesEvidence() {
	env.T.Helper()
	m, in := env.machine(), env.inNamespace(alone())
	claim := in.staticClaim()
	pod := in.runningPod(claim, m.name)
	in.Must(pod.Delete(in.Ctx))
	in.Must(pod.WaitGone(in.WithTimeout()))
	in.Eventually("claim "+claim+" is free", func() bool { return in.lockOf(claim) == "" })
	set := in.inNamespace(nil).scaledDown(nil)
	set.waitClaimGone(1)
}

// fence creates a NodeFence that a person confirms.
func (m *machine) fence() {
	m.T.Helper()
	_, err := m.fences.Fences.Create(m.Ctx, &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec: v1alpha1.NodeFenceSpec{Reason: "test", Agents: []v1alpha1.Agent{{Name: "operator",
			Covers: v1alpha1.CoversUntilUnfenced, Manual: &v1alpha1.ManualAgent{Instructions: "Pull the plug."}}}}},
		metav1.CreateOptions{})
	m.Must(err)
	m.WaitEvent(v1.ObjectReference{Namespace: metav1.NamespaceDefault, Kind: "NodeFence", Name: m.name},
		"WaitsForConfirmation")
}

func (m *machine) getFence() *v1alpha1.NodeFence {
	m.T.Helper()
	o, err := m.fences.Fences.Get(m.Ctx, m.name, metav1.GetOptions{})
	m.Must(err)
	return o
}

// confirmFence confirms that the machine is off, and waits until the node is tainted for that.
func (m *machine) confirmFence() {
	m.T.Helper()
	_, err := m.fences.Fences.Patch(m.Ctx, m.name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"confirmation":"I have pulled the plug.","confirmationUID":%q}}`, m.getFence().UID),
		metav1.PatchOptions{})
	m.Must(err)
	m.Eventually("NodeFence "+m.name+" is Released", func() bool {
		return m.getFence().Status.Phase == v1alpha1.PhaseReleased && m.tainted()
	})
}

// waitReturned boots the machine, and waits until its fence ends.
func (m *machine) waitReturned() {
	m.T.Helper()
	m.boot()
	m.Eventually("NodeFence "+m.name+" is Returned, and the taint is gone", func() bool {
		return m.getFence().Status.Phase == v1alpha1.PhaseReturned && !m.tainted()
	})
}

// fencing is a fence that waits for a person, with a pod that waits for the fence.
func (env *cluster) fencing(m *machine) waiting {
	in, pod := env.podOn(m)
	m.waitAway()
	m.fence()
	in.Must(pod.Delete(in.Ctx))
	return waiting{
		kept: func() {
			in.expectPod(pod, "terminating and held", func(now *v1.Pod) bool {
				return held(now) && now.DeletionTimestamp != nil
			})
			o := m.getFence()
			if meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionFenced) || m.tainted() {
				in.T.Errorf("WRONG RELEASE: node %s is fenced, and nobody has confirmed it: %+v", m.name, o.Status)
			}
		},
		end: func() {
			m.confirmFence()
			in.Must(pod.WaitGone(in.WithTimeout()))
			m.waitReturned()
		},
	}
}

// fenced is a fenced node that has not returned.
func (env *cluster) fenced(m *machine) waiting {
	m.silence()
	m.waitAway()
	m.fence()
	m.confirmFence()
	return waiting{
		kept: func() {
			if o := m.getFence(); o.Status.Phase != v1alpha1.PhaseReleased || !m.tainted() || o.Status.Proof == nil ||
				len(o.Status.Attempts) != 1 {
				m.T.Errorf("the fence of node %s has changed: %+v, tainted: %v", m.name, o.Status, m.tainted())
			}
		},
		end: m.waitReturned,
	}
}

// claimInUse is a claim that is deleted while a pod uses it.
func (env *cluster) claimInUse() waiting {
	m, in := env.machine(), env.inNamespace(nil)
	claim := in.CreateClaim(in.class)
	in.WaitBound(claim)
	pod := in.runningPod(claim.Name, m.name)
	in.MustDeleteClaim(claim)
	in.WaitClaimEvent(claim, "InUse", pod.Name)
	return waiting{
		kept: func() {
			if o, err := claim.Get(in.Ctx); err != nil || o == nil {
				in.T.Errorf("WRONG DELETE: claim %s is in use, and gone: %v", claim.Name, err)
			}
		},
		end: func() {
			in.Must(pod.Delete(in.Ctx))
			in.WaitClaim(claim, "gone", fixture.ClaimIsGone)
		},
	}
}

// markedClaim is the claim of a replica that was scaled away, with an hour of grace.
func (env *cluster) markedClaim() waiting {
	in := env.inNamespace(nil)
	set := in.scaledDown(map[string]string{graceAnnotation: "1h"})
	in.waitEvent("PersistentVolumeClaim", set.claimName(1), "ScaleDownGrace")
	return waiting{
		kept: func() {
			if claim := in.Claims().Find(set.claimName(1)); claim == nil || claim.DeletionTimestamp != nil {
				in.T.Errorf("WRONG DELETE: claim %s is deleted within its grace", set.claimName(1))
			}
		},
		end: func() {
			set.StatefulSets().Annotate(set.name, graceAnnotation, "0s")
			set.waitClaimGone(1)
		},
	}
}
