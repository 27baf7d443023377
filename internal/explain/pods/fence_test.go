package pods

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// fenced is a fence of node n1, proven a minute ago. Pod u was terminating before it.
func fenced(covers v1alpha1.Coverage) *v1alpha1.NodeFence {
	return &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "f",
		Finalizers: []string{"csi-reclaimer.io/fence"}}, Status: v1alpha1.NodeFenceStatus{
		Phase:    v1alpha1.PhaseFenced,
		Attempts: []v1alpha1.Attempt{{Number: 1, Agent: "ipmi", TerminatingPods: []types.UID{"u"}}},
		Proof: &v1alpha1.Proof{Attempt: 1, Agent: "ipmi", Covers: covers, ProvenAt: ago(time.Minute),
			BootID: "boot-1"},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue}},
	}}
}

func TestFenceIsEvidence(t *testing.T) {
	const see = "See why its fence waits: kubectl reclaim explain node/n1"
	down := func() Facts {
		f := held()
		f.down()
		f.Fence = explain.Found(fenced(v1alpha1.CoversUntilUnfenced))
		return f
	}
	by := func(fence *v1alpha1.NodeFence) func(*Facts) {
		return func(f *Facts) { f.Fence = explain.Found(fence) }
	}
	explained.Table(t, down, text, map[string]explained.Row[Facts]{
		"until it is unfenced": {func(*Facts) {}, []string{"(NodeFenced)",
			"Fence        Fenced, agent ipmi proved UntilUnfenced 60s ago (kubectl reclaim explain node/n1)",
			"Waits for    volume-guard to release it", "!Force risks", "!No evidence"}},
		"a reboot after the deletion": {by(fenced(v1alpha1.CoversReboot)), []string{"(NodeFenced)"}},
		"a reboot before the deletion": {func(f *Facts) {
			f.Fence = explain.Found(fenced(v1alpha1.CoversReboot))
			f.Fence.Value.Status.Attempts[0].TerminatingPods = nil
		}, []string{"(NodeUnreachable)", "NodeFenced: The node was rebooted before the pod was deleted", see}},
		"volumes alone": {by(fenced(v1alpha1.CoversVolumes)), []string{"(NodeUnreachable)",
			"NodeFenced: The fence keeps the node from volumes", see}},
		"it is to end": {func(f *Facts) {
			f.Fence.Value.Spec.Unfence = v1alpha1.UnfenceNow
		}, []string{"(NodeUnreachable)", "NodeFenced: No fence of the node is in force."}},
		"it has ended": {func(f *Facts) {
			s := &f.Fence.Value.Status
			s.Conditions[0] = metav1.Condition{Type: v1alpha1.ConditionReturned, Status: metav1.ConditionTrue}
		}, []string{"(NodeUnreachable)", "!Fence   ", "See who can fence it"}},
		"it is not proven": {by(&v1alpha1.NodeFence{}), []string{"(NodeUnreachable)",
			"Fence        Requested (kubectl", see}},
		"there is none": {by(nil), []string{"(NodeUnreachable)", "See who can fence it", "!Fence   "}},
		"it may not be read": {func(f *Facts) { explained.Forbid(&f.Fence) },
			[]string{"NodeFence n1: forbidden. So it is not known whether the node is fenced", "!See who", "(APIReadFailed)",
				"NodeFenced: The NodeFence could not be read."}},
		"it may not be read, and its node is Ready": {func(f *Facts) {
			explained.Forbid(&f.Fence)
			f.Node = explain.Found(node("n1", v1.ConditionTrue))
		}, []string{"(EndOverdue)", "NodeFenced: The NodeFence could not be read.", "!APIReadFailed"}},
		"no fencing in this cluster": {func(f *Facts) {
			f.Fence = explain.Failed[*v1alpha1.NodeFence](explain.ErrNoFencing)
		}, []string{"!Not read", "!See who", "(NodeUnreachable)", "NodeFenced: No fence of the node is in force."}},
	})
}

// The kubelet of a new boot unmounts nothing that the fence still hinders, so its report is worth the usual wait.
func TestRebootEndsWaitForFenceOfVolumes(t *testing.T) {
	for boot, want := range map[string]string{"boot-1": "VolumesFenced", "boot-2": "WaitsForUnmount"} {
		f := held()
		f.finish()
		f.Fence = explain.Found(fenced(v1alpha1.CoversVolumes))
		f.Node.Value.Status.NodeInfo.BootID = boot
		if got := f.hold(); string(podsafety.Decide(got, f.Now).Reason) != want {
			t.Errorf("boot %s: %+v", boot, podsafety.Decide(got, f.Now))
		}
	}
}

func TestListedNodeKeepsFactsOfDecisions(t *testing.T) {
	n := node("n1", v1.ConditionTrue)
	n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Effect: v1.TaintEffectNoExecute}}
	n.Status.NodeInfo = v1.NodeSystemInfo{BootID: "boot-1", MachineID: "machine", SystemUUID: "system"}
	if got, want := objects.NodeOf(explain.NodeOf(n)), objects.NodeOf(n); got != want || got.BootID == "" {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestListWithFences(t *testing.T) {
	f := listed(pod("p", "n2", func(p *explain.Pod) { p.Held, p.Terminating = true, true }))
	f.Fences = explain.Found(map[string]*v1alpha1.NodeFence{"n2": fenced(v1alpha1.CoversUntilUnfenced)})
	if l := ListOf(f, false); l.Pods[0].Reason != "NodeFenced" || l.Pods[0].WaitsFor != "volume-guard to release it" {
		t.Errorf("%+v", l)
	}
	explained.Forbid(&f.Fences)
	if l := ListOf(f, false); l.Pods[0].Reason != "APIReadFailed" || len(l.Unread) != 1 ||
		!strings.HasPrefix(l.Unread[0], "NodeFences: forbidden") {
		t.Errorf("%+v", l)
	}
	f.Fences = explain.Failed[map[string]*v1alpha1.NodeFence](explain.ErrNoFencing)
	if l := ListOf(f, false); len(l.Unread) != 0 || l.Pods[0].Reason != "NodeUnreachable" {
		t.Errorf("%+v", l)
	}
	e := Judge(f.Pods.Value[0], OnNode{Node: explain.Found(node("n2", v1.ConditionUnknown)),
		Fence: explain.Found(fenced(v1alpha1.CoversUntilUnfenced))}, now())
	if e.Decision.Reason != "NodeFenced" {
		t.Errorf("%+v", e)
	}
}
