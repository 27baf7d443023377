package nodes

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
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

func text(f Facts) string { return Explain(f).Wrapped(false, 0) }

// node is a node of zone a that has been in this state for 10 minutes.
func node(name string, ready v1.ConditionStatus) *v1.Node {
	o := explained.Node(name, ready)
	o.ResourceVersion, o.Labels = "1", map[string]string{v1.LabelTopologyZone: "a", "pool": "data"}
	return o
}

// lease is a Lease that was last renewed this long ago.
func lease(name string, since time.Duration) *coordinationv1.Lease {
	return explained.Lease(name, name+"-a", since)
}

// podOf is a pod of node n1.
func podOf(name string, claims ...string) *v1.Pod {
	o := explained.Pod("shop", name, claims...)
	o.Labels, o.Spec.NodeName, o.Status.Phase = map[string]string{"app": "db"}, "n1", v1.PodRunning
	return o
}

// pod is a pod of node n1 with a claim.
func pod(name string, change func(*explain.Pod)) explain.Pod {
	p := explain.PodOf(podOf(name, "data-"+name))
	change(&p)
	return p
}

// deleted makes a pod held, and terminating for 5 minutes.
func deleted(p *explain.Pod) {
	p.Held, p.Terminating, p.GraceZero, p.TerminatingSince = true, true, true, now().Add(-5*time.Minute)
	p.GraceEnds = p.TerminatingSince
}

// down is a node that has been unreachable for 10 minutes, with a held pod, a running pod, and a pod without claims.
// The cluster has four other nodes, no fences and no policies.
func down() Facts {
	others := pod("web", func(p *explain.Pod) { p.Claims = nil })
	f := Facts{Now: now(), Name: "n1", Pods: explain.Found([]explain.Pod{pod("b", func(*explain.Pod) {}), pod("a",
		deleted), others}),
		OnNode: pods.OnNode{Node: explain.Found(node("n1", v1.ConditionUnknown)),
			Lease: explain.Found(lease("n1", 11*time.Minute)), Fence: explain.Found[*v1alpha1.NodeFence](nil)},
		Attachments: explain.Found([]storagev1.VolumeAttachment{attachment("csi-1")}),
		Policies:    explain.Found[[]*v1alpha1.FencePolicy](nil),
		Guards:      explain.Found([]coordinationv1.Lease{*lease(explain.VolumeGuard, time.Second)}),
		Events:      explain.Found[[]v1.Event](nil),
	}
	leases := map[string]*coordinationv1.Lease{"n1": f.Lease.Value}
	all := []*v1.Node{f.Node.Value}
	for _, name := range []string{"n2", "n3", "n4", "n5"} {
		all = append(all, node(name, v1.ConditionTrue))
		leases[name] = lease(name, 5*time.Second)
	}
	f.Cluster = ClusterFacts{Nodes: explain.Found(all), Leases: explain.Found(leases), Pods: f.Pods,
		Fences:     explain.Found(map[string]*v1alpha1.NodeFence{}),
		Namespaces: explain.Found(map[string]map[string]string{"shop": {"tier": "gold"}}),
		Budgets:    explain.Found[[]policyv1.PodDisruptionBudget](nil)}
	return f
}

func attachment(name string) storagev1.VolumeAttachment {
	return explained.Attachment(name, "n1", "pv-1", "disk.csi")
}

// ready makes the node Ready, without a terminating pod.
func (f *Facts) ready() {
	f.Node.Value.Status.Conditions[0].Status = v1.ConditionTrue
	f.Lease = explain.Found(lease("n1", 5*time.Second))
	f.Pods.Value = f.Pods.Value[:1]
}

func jobAgent() v1alpha1.Agent {
	return v1alpha1.Agent{Name: "ipmi", Covers: v1alpha1.CoversUntilUnfenced,
		Timeout: metav1.Duration{Duration: 5 * time.Minute},
		Job:     &v1alpha1.JobAgent{Namespace: "ops", PodTemplateName: "power-off", Undo: true}}
}

func rebootAgent() v1alpha1.Agent {
	return v1alpha1.Agent{Name: "sbr", Covers: v1alpha1.CoversReboot, Remediation: &v1alpha1.RemediationAgent{
		APIVersion: "x.io/v1", Kind: "SelfNodeRemediationTemplate", Namespace: "ops", Name: "reboot"}}
}

func volumesAgent() v1alpha1.Agent {
	return v1alpha1.Agent{Name: "net", Covers: v1alpha1.CoversVolumes, NetworkFence: &v1alpha1.NetworkFenceAgent{
		Driver: "disk.csi", NetworkFenceClassName: "fast"}}
}

// policy is a policy that fences after 5 minutes.
func policy(name string, change func(*v1alpha1.FencePolicySpec)) *v1alpha1.FencePolicy {
	p := &v1alpha1.FencePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FencePolicySpec{
		UnreachableAfter: metav1.Duration{Duration: 5 * time.Minute}, Agents: []v1alpha1.Agent{jobAgent()},
		MaxFences: intstr.FromInt32(1), MaxFencesPerZone: 1, HaltAbove: 40},
		Status: v1alpha1.FencePolicyStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionActive}}}}
	change(&p.Spec)
	return p
}

// fenced gives the node a fence that kubectl-reclaim created a minute ago.
func (f *Facts) fenced(agents ...v1alpha1.Agent) *v1alpha1.NodeFence {
	fence := &v1alpha1.NodeFence{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "f", CreationTimestamp: ago(time.Minute), ResourceVersion: "3",
			Finalizers:    []string{fencing.Finalizer},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl-reclaim"}}},
		Spec: v1alpha1.NodeFenceSpec{Reason: "kernel\nhangs", Agents: agents, Unfence: v1alpha1.UnfenceWhenReturned},
	}
	f.Fence = explain.Found(fence)
	return fence
}

// attempt adds an attempt that began 50 seconds ago. It took 20 seconds, unless the result is empty.
func attempt(fence *v1alpha1.NodeFence, agent string, result v1alpha1.Result, message string) *v1alpha1.Attempt {
	a := v1alpha1.Attempt{Number: int32(len(fence.Status.Attempts) + 1), Agent: agent, StartedAt: ago(50 * time.Second),
		Result: result, Message: message, BootID: "boot-1"}
	fence.Status.Phase = v1alpha1.PhaseFencing
	if result != "" {
		a.EndedAt = ptr.To(ago(30 * time.Second))
		fence.Status.Phase = v1alpha1.PhaseFailed
	}
	fence.Status.Attempts = append(fence.Status.Attempts, a)
	return &fence.Status.Attempts[len(fence.Status.Attempts)-1]
}

// prove adds a proof of the agent.
func prove(fence *v1alpha1.NodeFence, agent v1alpha1.Agent) {
	a := attempt(fence, agent.Name, v1alpha1.ResultProven, "off")
	fence.Status.Proof = &v1alpha1.Proof{Attempt: a.Number, Agent: agent.Name, Covers: agent.Covers, BootID: "boot-1",
		LeaseVersion: "1", ProvenAt: *a.EndedAt}
	if agent.NetworkFence != nil {
		fence.Status.Proof.Volumes = []v1alpha1.CoveredVolumes{{Agent: agent.Name, Driver: agent.NetworkFence.Driver,
			Volumes: v1alpha1.VolumesMatching, VolumeAttributes: map[string]v1alpha1.AttributeValue{"clusterID": "one"}}}
	}
	condition(fence, v1alpha1.ConditionFenced)
	fence.Status.Phase = v1alpha1.PhaseFenced
}

// condition adds a condition with status True.
func condition(fence *v1alpha1.NodeFence, of string) {
	fence.Status.Conditions = append(fence.Status.Conditions, metav1.Condition{Type: of, Status: metav1.ConditionTrue,
		Reason: "Test", LastTransitionTime: ago(30 * time.Second)})
}

// released adds a fence in force and its taint.
func (f *Facts) released(agent v1alpha1.Agent) *v1alpha1.NodeFence {
	fence := f.fenced(agent)
	prove(fence, agent)
	condition(fence, v1alpha1.ConditionReleased)
	fence.Status.Phase = v1alpha1.PhaseReleased
	f.Node.Value.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Value: objects.OwnTaintValue,
		Effect: v1.TaintEffectNoExecute}}
	return fence
}

// shut adds a fence of volumes in force, and its taint.
func (f *Facts) shut() *v1alpha1.NodeFence {
	fence := f.fenced(volumesAgent())
	prove(fence, volumesAgent())
	f.Node.Value.Spec.Taints = []v1.Taint{{Key: objects.VolumesFencedTaint, Effect: v1.TaintEffectNoSchedule}}
	return fence
}

// ended adds a fence that has ended.
func (f *Facts) ended() {
	fence := f.fenced(jobAgent())
	condition(fence, v1alpha1.ConditionReturned)
	fence.Status.Phase = v1alpha1.PhaseReturned
}
