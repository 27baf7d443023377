package nodes

import (
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestExplainNode(t *testing.T) {
	f := down()
	f.Policies = explain.Found([]*v1alpha1.FencePolicy{policy("default", func(s *v1alpha1.FencePolicySpec) {
		s.UnreachableAfter.Duration = 30 * time.Minute
	})})
	want := must.Get(os.ReadFile("testdata/node.txt"))(t)
	if got := Explain(f).Wrapped(false, 0); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestExplainNodeStates(t *testing.T) {
	explained.Table(t, down, text, map[string]explained.Row[Facts]{
		"it is Ready": {func(f *Facts) { f.ready() },
			[]string{"Node n1 is Ready, and nothing waits for it. It has no fence.",
				"Pod          shop/b, Running, claim data-b", "!You can", "!No evidence"}},
		"it is Ready, and a pod is held": {func(f *Facts) {
			f.ready()
			f.Pods.Value = []explain.Pod{pod("a", deleted)}
		}, []string{"Node n1 is Ready, and 1 held pod waits for it."}},
		"its Node is gone": {func(f *Facts) { explained.Remove(&f.Node) }, []string{
			"Node n1 does not exist, and 1 held pod waits for it; 1 pod with claims is on it", "bring its kubelet back",
			"NodeGone: The Node does not exist.", "!kubectl delete node", "!--force"}},
		"its Node is gone, and its kubelet was ending a held pod": {func(f *Facts) {
			explained.Remove(&f.Node)
			p := &f.Pods.Value[1]
			p.Running, p.Generation, p.ObservedGeneration = true, 3, 3
		}, []string{"Wait: held pods without the reason NodeGoneDuringEnd are released", "bring its kubelet back",
			"kubectl reclaim delete-pod NAME -n NAMESPACE --force"}},
		"its Node is gone, and its pods may not be read": {func(f *Facts) {
			explained.Remove(&f.Node)
			explained.Forbid(&f.Pods)
		}, []string{"Wait: held pods without the reason NodeGoneDuringEnd", "delete-pod NAME -n NAMESPACE --force"}},
		"a held pod is ending there": {func(f *Facts) {
			p := &f.Pods.Value[1]
			p.Running, p.Generation, p.ObservedGeneration = true, 3, 3
		}, []string{"kubectl reclaim fence n1 --manual", "Keep its Node until no held pod ends there",
			"!kubectl delete node"}},
		"its pods may not be read": {func(f *Facts) { explained.Forbid(&f.Pods) }, []string{
			"Keep its Node until no held pod ends there", "!kubectl delete node"}},
		"no fencing in this cluster": {func(f *Facts) {
			f.Fence = explain.Failed[*v1alpha1.NodeFence](explain.ErrNoFencing)
			f.Policies = explain.Failed[[]*v1alpha1.FencePolicy](explain.ErrNoFencing)
		}, []string{"No node is fenced in this cluster.", "Fence        none: the API server does not serve NodeFences",
			"kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", "!Not read", "!reclaim fence"}},
		"fences may not be read": {func(f *Facts) {
			explained.Forbid(&f.Fence)
			explained.Forbid(&f.Policies)
		}, []string{"Whether it has a fence is not known.",
			"NodeFence n1: forbidden. So it is not known whether the node is fenced",
			"FencePolicies: forbidden. So it is not known whether", "!Fence        none", "!reclaim fence"}},
		"nothing may be read": {func(f *Facts) {
			*f = Facts{Now: now(), Name: "n1", Pods: explain.Failed[[]explain.Pod](errForbidden), OnNode: f.OnNode,
				Attachments: explain.Failed[[]storagev1.VolumeAttachment](errForbidden),
				Guards:      explain.Failed[[]coordinationv1.Lease](errForbidden),
				Events:      explain.Failed[[]v1.Event](errForbidden)}
			f.Node, f.Lease = explain.Failed[*v1.Node](errForbidden), explain.Failed[*coordinationv1.Lease](errForbidden)
		}, []string{"Node n1 could not be read, and which pods are on it could not be read.", "Pods: forbidden",
			"VolumeAttachments: forbidden", "Leases: forbidden", "Events: forbidden", "!You can"}},
		"a volume is being detached": {func(f *Facts) {
			f.Attachments.Value[0].DeletionTimestamp = ptr.To(ago(2 * time.Minute))
			f.Attachments.Value = append(f.Attachments.Value, attachment("csi-2"))
			f.Attachments.Value[1].Spec.Source.PersistentVolumeName, f.Attachments.Value[1].Status.Attached = nil, false
		}, []string{"PV pv-1, driver disk.csi, detaching for 2m",
			"an inline volume, driver disk.csi, not attached yet (VolumeAttachment csi-2)"}},
		"many pods and volumes are on it": {func(f *Facts) {
			for range 25 {
				f.Pods.Value = append(f.Pods.Value, pod("c", deleted))
				f.Attachments.Value = append(f.Attachments.Value, attachment("csi-2"))
			}
		}, []string{"Pod          and 7 more with claims", "Volume       and 6 more"}},
		"it is of the control plane": {func(f *Facts) { f.Node.Value.Labels[objects.ControlPlaneLabel] = "" }, []string{
			"Role         control plane"}},
		"it has no condition": {func(f *Facts) { f.Node.Value.Status.Conditions = nil }, []string{
			"Node n1 is NotReady, and 1 held pod"}},
		"its progress is reported": {func(f *Facts) {
			f.Events = explain.Found([]v1.Event{{Reason: "Fencing", Message: "m", LastTimestamp: ago(time.Minute),
				Source: v1.EventSource{Component: "volume-guard"}}})
		}, []string{"Events       60s ago, volume-guard: Fencing: m"}},
	})
}

func TestExplainFence(t *testing.T) {
	const confirm = "kubectl reclaim confirm node/n1 --because=TEXT"
	explained.Table(t, down, text, map[string]explained.Row[Facts]{
		"not started": {func(f *Facts) {
			fence := f.fenced(jobAgent())
			fence.Finalizers, fence.CreationTimestamp = nil, ago(2*time.Minute)
		}, []string{"Its fence is Requested (Requested): The node is to be fenced.", "Fence        Requested",
			`Asked for    2m ago by kubectl-reclaim: "kernel hangs"`,
			"Ends         when the node has booted again, and nothing from before needs it",
			"Agent        ipmi (Job of PodTemplate ops/power-off, covers UntilUnfenced), not tried yet",
			"Decision     AddFinalizer, Requested (by volume-guard, controller node-fencing)", "Waits for    volume-guard",
			"This fence has not been started", "!To have it fenced"}},
		"it was just asked for by a policy": {func(f *Facts) {
			fence := f.fenced(jobAgent())
			fence.Finalizers, fence.Spec.PolicyName = nil, "default"
		}, []string{"by FencePolicy default", "!This fence has not been started"}},
		"volume-guard is away": {func(f *Facts) {
			f.fenced(jobAgent()).Finalizers = nil
			f.Guards.Value[0] = *lease(explain.VolumeGuard, time.Hour)
		}, []string{"Start volume-guard with the controller node-fencing", "!This fence has not been started"}},
		"an agent works": {func(f *Facts) { attempt(f.fenced(jobAgent(), rebootAgent()), "ipmi", "", "") }, []string{
			"Fence        Fencing, agent ipmi began 50s ago",
			"Attempt      1, agent ipmi (Job of PodTemplate ops/power-off, covers UntilUnfenced): began 50s ago, no result yet",
			"Agent        sbr (SelfNodeRemediationTemplate ops/reboot, covers Reboot), not tried yet",
			"Decision     Fencing (by", "Waits for    agent ipmi, 4m10s at most",
			"Inspect the Job of agent ipmi: kubectl describe job -n ops -l csi-reclaimer.io/fence=f", confirm}},
		"a person is waited for": {func(f *Facts) {
			agents := ManualAgents()
			agents[0].Manual.Instructions = "kubectl cordon it,\npull the plug"
			attempt(f.fenced(agents...), "manual", "", "")
		}, []string{"(WaitsForConfirmation)",
			"Waits for    a person to confirm that no process writes there, 23h59m10s at most",
			"Follow the instructions of agent manual: kubectl cordon it, pull the plug", confirm}},
		"all agents have failed": {func(f *Facts) {
			attempt(f.fenced(jobAgent()), "ipmi", v1alpha1.ResultFailed, "no\nroute")
		}, []string{"Its fence is Failed (AllAgentsFailed)", "Waits for    the next try of all agents, 30s at most",
			"Attempt      1, agent ipmi (Job of PodTemplate ops/power-off, covers UntilUnfenced): Failed after 20s, 30s ago: " +
				"no route", confirm, "To give it up: kubectl reclaim unfence n1"}},
		"a node health check has given it up": {func(f *Facts) {
			fence := f.fenced(jobAgent())
			attempt(fence, "ipmi", v1alpha1.ResultCanceled, "")
			fence.Annotations = map[string]string{v1alpha1.AnnotationTimedOut: ""}
			fence.Status.Conditions = append(fence.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionSucceeded,
				Status: metav1.ConditionFalse, Reason: "HealthCheckGaveUp"})
		}, []string{"Its fence is Failed (HealthCheckGaveUp)", "Waits for    a person, or another remediator",
			"kubectl annotate nodefence n1 remediation.medik8s.io/nhc-timed-out-", confirm}},
		"the next agent is to start": {func(f *Facts) {
			attempt(f.fenced(jobAgent(), rebootAgent()), "ipmi", v1alpha1.ResultTimedOut, "")
		}, []string{"(Fencing)", "WriteStatus", "Waits for    volume-guard to start the next agent"}},
		"it is released": {func(f *Facts) { f.released(jobAgent()) }, []string{"Its fence is Released (Released)",
			"Fence        Released, agent ipmi proved UntilUnfenced 30s ago", "Waits for    the node to boot again",
			"Taints       node.kubernetes.io/out-of-service=csi-reclaimer:NoExecute",
			"Pod          shop/a, Terminating,NodeDown for 5m, held by volume-guard (NodeFenced)", "!No evidence",
			"kubectl reclaim unfence n1 --when-released", "nothing shows it: kubectl reclaim unfence n1"}},
		"volumes were just fenced": {func(f *Facts) { prove(f.fenced(volumesAgent()), volumesAgent()) }, []string{
			"AddTaint", "Waits for    volume-guard", "!New pods"}},
		"volumes are fenced": {func(f *Facts) { f.shut() }, []string{
			"Taints       csi-reclaimer.io/volumes-fenced:NoSchedule",
			"New pods     none until the node has booted again, because they could not mount the fenced volumes",
			"Fence        Fenced, agent net proved Volumes of driver disk.csi with clusterID=one 30s ago",
			"NetworkFence of driver disk.csi, class fast, covers Volumes", "held by volume-guard (NodeUnreachable)",
			"NodeFenced: The fence keeps the node from volumes; the processes run on.", "!--when-released"}},
		"volumes are fenced, and the node has booted": {func(f *Facts) {
			f.shut()
			f.Node.Value.Status.NodeInfo.BootID = "boot-2"
		}, []string{"New pods     none until volume-guard removes the taint csi-reclaimer.io/volumes-fenced", "!mount"}},
		"volumes are fenced, and the Node shows no boot ID": {func(f *Facts) {
			f.shut()
			f.Node.Value.Status.NodeInfo.BootID = ""
		}, []string{"New pods     none until the node has booted again"}},
		"the end of a fence of volumes has begun": {func(f *Facts) {
			f.shut().Spec.Unfence = v1alpha1.UnfenceNow
		}, []string{"New pods     none until volume-guard removes the taint"}},
		"a taint is left over from an earlier fence of volumes": {func(f *Facts) {
			f.shut()
			prove(f.fenced(jobAgent()), jobAgent())
		}, []string{"New pods     none until volume-guard removes the taint"}},
		"a person evicts the pods": {func(f *Facts) {
			f.shut()
			f.Node.Value.Spec.Taints[0].Effect = v1.TaintEffectNoExecute
		}, []string{"Taints       csi-reclaimer.io/volumes-fenced:NoExecute", "!New pods"}},
		"its fence of volumes was deleted": {func(f *Facts) {
			fence := f.shut()
			fence.DeletionTimestamp = ptr.To(ago(time.Second))
		}, []string{"(NeedsReboot)", "Ends         when the node has booted again, and nothing from before needs it: ",
			"Waits for    the node to be rebooted", "Reboot the node, which ends the fence", "!now: the NodeFence"}},
		"a reboot came too late for a pod": {func(f *Facts) { prove(f.fenced(rebootAgent()), rebootAgent()) }, []string{
			"NodeFenced: The node was rebooted before the pod was deleted"}},
		"it is proven, and the node is Ready yet": {func(f *Facts) {
			prove(f.fenced(jobAgent()), jobAgent())
			f.Node.Value.Status.Conditions[0].Status = v1.ConditionTrue
		}, []string{"(NodeStillReady)", "Waits for    the node to become NotReady"}},
		"the node runs": {func(f *Facts) {
			prove(f.fenced(jobAgent()), jobAgent())
			f.Lease.Value.ResourceVersion, f.Lease.Value.Spec.RenewTime = "2", lease("n1", time.Second).Spec.RenewTime
		}, []string{"(NodeRuns)", "Waits for    the node to stop: it still renews its Lease",
			"Find out whether the machine runs"}},
		"the renewer of the Lease is silent since": {func(f *Facts) {
			prove(f.fenced(jobAgent()), jobAgent())
			f.Lease.Value.ResourceVersion = "2"
		}, []string{"!NodeRuns", "AddTaint"}},
		"the node is back, and a pod remains": {func(f *Facts) {
			f.released(jobAgent())
			f.Node.Value.Status.NodeInfo.BootID, f.Lease.Value.ResourceVersion = "boot-2", "2"
			f.Node.Value.Spec.Taints = nil
		}, []string{"(RemainsOnNode)", "Waits for    1 held pod\n", "kubectl reclaim pods -A"}},
		"its agents are to undo it when all is released": {func(f *Facts) {
			f.released(jobAgent()).Spec.Unfence = v1alpha1.UnfenceWhenReleased
		}, []string{"Ends         the agents undo it when", "Waits for    2 pods with claims and 1 attached volume"}},
		"a held pod that has ended keeps it": {func(f *Facts) {
			f.released(jobAgent()).Spec.Unfence = v1alpha1.UnfenceWhenReleased
			f.Pods.Value, f.Attachments.Value = f.Pods.Value[1:2], nil
			f.Pods.Value[0].Final, f.Pods.Value[0].Succeeded, f.Pods.Value[0].Reported = true, true, true
		}, []string{"(RemainsOnNode)", "Waits for    1 pod"}},
		"it is undone, and the node has to boot": {func(f *Facts) {
			fence := f.released(jobAgent())
			fence.Spec.Unfence, fence.Status.Attempts[0].UndoneAt = v1alpha1.UnfenceWhenReleased, ptr.To(ago(time.Second))
			fence.Status.Conditions[0].Status, fence.Status.Phase = metav1.ConditionFalse, v1alpha1.PhaseUnfencing
		}, []string{"Its fence is Unfencing (AwaitsReturn)", "30s ago, undone 1s ago: off", "Start the machine"}},
		"ended by request": {func(f *Facts) {
			fence := f.released(jobAgent())
			fence.Spec.Unfence, fence.Status.Conditions[0].Status = v1alpha1.UnfenceNow, metav1.ConditionFalse
		}, []string{"Ends         now: spec.unfence asks for it", "Waits for    the agents to undo the fence",
			"NodeFenced: No fence of the node is in force."}},
		"abandoned": {func(f *Facts) { f.released(jobAgent()).Spec.Unfence = v1alpha1.UnfenceAbandon }, []string{
			"Ends         now, and the agents undo nothing"}},
		"deleted": {func(f *Facts) { f.released(jobAgent()).DeletionTimestamp = ptr.To(ago(time.Second)) },
			[]string{
				"Ends         now: the NodeFence is being deleted"}},
		"it has ended": {func(f *Facts) { f.ended() }, []string{"Its fence is Returned (Returned): The fence has ended.",
			"To have it fenced by agents", "!Waits for    v"}},
		"a person has confirmed": {func(f *Facts) { say(f.fenced(jobAgent()), "cut the\ncable") }, []string{
			`Confirmed    "cut the cable"`}},
		"its node is a control-plane node": {func(f *Facts) {
			f.fenced(jobAgent())
			f.Node.Value.Labels[objects.ControlPlaneLabel] = ""
		}, []string{"(ControlPlaneNode)", "Waits for    spec.allowControlPlane"}},
		"its node may not be read": {func(f *Facts) {
			f.released(jobAgent())
			explained.Forbid(&f.Node)
		}, []string{"(APIReadFailed): A fact that the next step depends on could not be read here", "!Waits for    volume"}},
	})
}

// The decision has to be the engine's own in each phase of a fence.
func TestExplainDecidesAsVolumeGuard(t *testing.T) {
	for name, change := range map[string]func(*Facts){
		"requested": func(f *Facts) { f.fenced(jobAgent()) },
		"by hand":   func(f *Facts) { attempt(f.fenced(ManualAgents()...), "manual", "", "") },
		"failed":    func(f *Facts) { attempt(f.fenced(jobAgent()), "ipmi", v1alpha1.ResultFailed, "") },
		"proven":    func(f *Facts) { prove(f.fenced(jobAgent()), jobAgent()) },
		"released":  func(f *Facts) { f.released(jobAgent()) },
		"volumes":   func(f *Facts) { prove(f.fenced(volumesAgent()), volumesAgent()) },
		"shut":      func(f *Facts) { f.shut() },
		"ended":     func(f *Facts) { f.ended() },
	} {
		f := down()
		change(&f)
		want := fencing.Decide(f.fenceFacts(f.Fence.Value), f.Now)
		if want.RecordsWait {
			want.Action = fencing.Wait
		}
		if d := Explain(f).Decision; d.Action != want.Action.String() || d.Reason != string(want.Reason) {
			t.Errorf("%s: %s because %s, want %s because %s", name, d.Action, d.Reason, want.Action, want.Reason)
		}
	}
}

// listed returns the facts about the fences of n1 and n0.
func listed(change func(*Facts)) ListFacts {
	f := down()
	change(&f)
	other := f.Fence.Value.DeepCopy()
	other.Name = "n0"
	on := f
	on.Name = "n0"
	return ListFacts{Now: now(), Fences: []*v1alpha1.NodeFence{f.Fence.Value, other}, On: map[string]Facts{"n1": f,
		"n0": on}}
}

func TestListOf(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"an agent works": {func(f *Facts) { attempt(f.fenced(jobAgent()), "ipmi", "", "") },
			`"phase":"Fencing","reason":"Fencing","waitsFor":"agent ipmi, 4m10s at most","agent":"ipmi","attempts":1,` +
				`"held":1,"detaching":0,"askedBy":"kubectl-reclaim","because":"kernel hangs","since":"2026-01-02T03:03:05Z"}`},
		"it is proven": {func(f *Facts) { f.shut() },
			`"phase":"Fenced","reason":"Fenced","waitsFor":"the node to boot again","agent":"net","attempts":1,` +
				`"covers":"Volumes","drivers":["disk.csi"],`},
		"not all could be read": {func(f *Facts) {
			f.released(jobAgent())
			f.Node, f.Pods = explain.Failed[*v1.Node](errForbidden), explain.Failed[[]explain.Pod](errForbidden)
		}, `"phase":"Released","reason":"APIReadFailed","waitsFor":"not known: not all could be read","agent":"ipmi",` +
			`"attempts":1,"covers":"UntilUnfenced","askedBy"`},
		"attachments could not be read": {func(f *Facts) {
			f.released(jobAgent())
			explained.Forbid(&f.Attachments)
		}, `"covers":"UntilUnfenced","askedBy"`},
		"it has ended":   {func(f *Facts) { f.ended() }, `"phase":"Returned","reason":"Returned","attempts":0,`},
		"nothing is yet": {func(f *Facts) { f.fenced().Finalizers = nil }, `"phase":"Requested","reason":"Requested"`},
	} {
		l := ListOf(listed(c.change))
		if len(l.Fences) != 2 || l.Fences[0].Node != "n0" || l.Fences[1].Node != "n1" {
			t.Fatalf("%s: %+v", sentence, l)
		}
		if text := explained.JSON(l.Fences[1]); !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %s", sentence, text, c.want)
		}
	}
	if l := ListOf(ListFacts{}); l.Fences == nil {
		t.Error("no fences are null in JSON")
	}
	l := ListOf(listed(func(f *Facts) { f.ended(); explained.Forbid(&f.Pods) }))
	if len(l.Unread) != 2 || !strings.HasPrefix(l.Unread[0], "Pods on node n1: forbidden") {
		t.Errorf("%q", l.Unread)
	}
}
