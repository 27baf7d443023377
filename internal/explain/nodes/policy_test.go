package nodes

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// waiting replaces the pods of the node.
func (f *Facts) waiting(change ...func(*v1.Pod)) {
	f.Pods.Value = nil
	for _, c := range change {
		o := podOf("a", "data")
		c(o)
		f.Pods.Value = append(f.Pods.Value, explain.PodOf(o))
	}
	f.Cluster.Pods = f.Pods
}

// isDeleted makes the pod terminating. tolerates makes it tolerate an unreachable node for 15 minutes.
func isDeleted(o *v1.Pod) { o.DeletionTimestamp = ptr.To(ago(time.Minute)) }

func tolerates(o *v1.Pod) {
	o.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists,
		Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](15 * 60)}}
}

// budget adds a healthy budget of a namespace for pods with these labels.
func (f *Facts) budget(namespace string, labels map[string]string) {
	f.Cluster.Budgets.Value = []policyv1.PodDisruptionBudget{{ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
		Status: policyv1.PodDisruptionBudgetStatus{ExpectedPods: 3, CurrentHealthy: 2, DesiredHealthy: 2}}}
}

// The policies fence after 5 minutes, and the node has been unreachable for 10 minutes.
func TestExplainPolicies(t *testing.T) {
	const fences = "default: Unreachable: The node is unreachable, and pods with claims wait for it: it is fenced."
	base := func() Facts {
		f := down()
		f.waiting(isDeleted)
		f.Policies = explain.Found([]*v1alpha1.FencePolicy{policy("default", func(*v1alpha1.FencePolicySpec) {})})
		return f
	}
	spec := func(f *Facts) *v1alpha1.FencePolicySpec { return &f.Policies.Value[0].Spec }
	explained.Table(t, base, text, map[string]explained.Row[Facts]{
		"it fences the node": {func(*Facts) {}, []string{fences}},
		"it only says so": {func(f *Facts) { spec(f).DryRun = true },
			[]string{"WouldFence"}},
		"it waits for longer": {func(f *Facts) { spec(f).UnreachableAfter.Duration = 12 * time.Minute },
			[]string{"Patience", "It is fenced in about 2m, if nothing changes."}},
		"the Lease was renewed later than the Node says": {func(f *Facts) {
			spec(f).UnreachableAfter.Duration = 12 * time.Minute
			f.Cluster.Leases.Value["n1"] = lease("n1", 8*time.Minute)
		}, []string{"in about 4m"}},
		"its pods are not deleted yet": {func(f *Facts) {
			f.waiting(isDeleted, tolerates)
			f.Node.Value.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute,
				TimeAdded: ptr.To(ago(10 * time.Minute))}}
		}, []string{"Tolerated", "The last one is deleted in about 5m", "for that for about 50m at most"}},
		"its pods are not deleted yet, at an unknown time": {func(f *Facts) { f.waiting(tolerates) },
			[]string{"Tolerated", "!The last one"}},
		"no pod waits": {func(f *Facts) { f.waiting() }, []string{"NothingWaits"}},
		"only pods wait that are to stay there": {func(f *Facts) {
			f.waiting(func(o *v1.Pod) { tolerates(o); o.Spec.Tolerations[0].TolerationSeconds = nil })
		}, []string{"NothingWaits"}},
		"it is for other nodes": {func(f *Facts) {
			spec(f).NodeSelector.MatchLabels = map[string]string{"pool": "web"}
		}, []string{"default: does not select this node", "!--agents-of"}},
		"it is not for the control plane": {func(f *Facts) { f.Node.Value.Labels[objects.ControlPlaneLabel] = "" },
			[]string{"does not select nodes of the control plane"}},
		"its selector of nodes is not valid": {func(f *Facts) {
			spec(f).NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Is"}}
		}, []string{`fences no node: nodeSelector of FencePolicy "default"`}},
		"its selector is not valid": {func(f *Facts) {
			spec(f).NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Is"}}
		}, []string{`fences no node: namespaceSelector of FencePolicy "default"`}},
		"it is for other namespaces": {func(f *Facts) {
			spec(f).NamespaceSelector.MatchLabels = map[string]string{"tier": "bronze"}
		}, []string{"NothingWaits"}},
		"it is for these namespaces": {func(f *Facts) {
			spec(f).NamespaceSelector.MatchLabels = map[string]string{"tier": "gold"}
		}, []string{fences}},
		"it is patient where budgets are healthy": {func(f *Facts) {
			spec(f).BudgetPatience.Duration = time.Hour
			f.budget("shop", map[string]string{"app": "db"})
		}, []string{"Patience", "in about 55m"}},
		"a budget of another namespace does not count": {func(f *Facts) {
			spec(f).BudgetPatience.Duration = time.Hour
			f.budget("x", nil)
		}, []string{fences}},
		"another node is fenced": {func(f *Facts) {
			f.Cluster.Fences.Value["n2"] = &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
		}, []string{"LimitReached"}},
		"another fence has ended": {func(f *Facts) {
			fence := &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
			condition(fence, v1alpha1.ConditionReturned)
			f.Cluster.Fences.Value["n2"] = fence
		}, []string{fences}},
		"another node comes first": {func(f *Facts) {
			s := spec(f)
			s.MaxFences.IntVal, s.MaxFencesPerZone, s.WaitForTolerations = 2, 2, ptr.To(false)
			other := f.Cluster.Nodes.Value[1]
			other.Status.Conditions[0].Status = v1.ConditionUnknown
			other.Status.Conditions[0].LastTransitionTime = ago(time.Hour)
			f.Cluster.Leases.Value["n2"] = lease("n2", time.Hour)
			elsewhere := pod("x", func(p *explain.Pod) { p.Node = "n2" })
			f.Cluster.Pods.Value = append(f.Cluster.Pods.Value, elsewhere)
		}, []string{"Node n2 comes first."}},
		"most nodes are unreachable": {func(f *Facts) {
			for _, n := range f.Cluster.Nodes.Value[:3] {
				n.Status.Conditions[0].Status = v1.ConditionUnknown
			}
		}, []string{"ManyUnreachable"}},
		"no Lease is renewed": {func(f *Facts) {
			for name := range f.Cluster.Leases.Value {
				if name != "n1" {
					f.Cluster.Leases.Value[name] = lease(name, 41*time.Second)
				}
			}
		}, []string{"ViewLost"}},
		"it has fenced the node": {func(f *Facts) {
			f.Cluster.Fences.Value["n1"] = f.fenced(jobAgent())
		}, []string{"default: FenceExists"}},
		"the node is Ready": {func(f *Facts) { spec(f).DryRun = true; f.ready() },
			[]string{"fences the node once it has been unreachable for 5m, and a pod with a claim waits for it. It is a dry " +
				"run, and only reports this."}},
		"the kubelet says that it is not ready": {func(f *Facts) {
			f.Node.Value.Status.Conditions[0].Status = v1.ConditionFalse
		}, []string{"Its kubelet reports, and so it is reachable"}},
		"Leases may not be read": {func(f *Facts) { explained.Forbid(&f.Cluster.Leases) },
			[]string{"Leases in kube-node-lease: forbidden. So it is not known how each FencePolicy acts.", "!Policy  "}},
		"volume-guard has not reported": {func(f *Facts) { f.Policies.Value[0].Status.Conditions = nil }, []string{
			fences + " But volume-guard has not reported on this policy"}},
		"volume-guard has reported something else": {func(f *Facts) {
			f.Policies.Value[0].Status.Nodes = []v1alpha1.NodeJudgement{{Name: "n2", Reason: "Patience"},
				{Name: "n1", Reason: "LimitReached", Since: ago(time.Minute)}}
		}, []string{fences + " volume-guard has reported LimitReached since 60s ago."}},
		"volume-guard has reported that": {func(f *Facts) {
			f.Policies.Value[0].Status.Nodes = []v1alpha1.NodeJudgement{{Name: "n1", Reason: "Unreachable"}}
		}, []string{"!volume-guard has"}},
		"there is none": {func(f *Facts) { f.Policies.Value = nil }, []string{
			"Policy       none: no node is fenced without a request"}},
	})
}
