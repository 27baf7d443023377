package fencing

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// outage is a world with a policy and three nodes, one of them unreachable.
func outage(t *testing.T, alter ...func(*v1alpha1.FencePolicySpec)) *world {
	t.Helper()
	w := newWorld(t, Config{})
	for _, name := range []string{"a", "b", "c"} {
		w.node(name, v1.ConditionTrue)
	}
	w.policy("p", alter...)
	w.pass(leasePoll)
	w.took()
	w.node("a", v1.ConditionUnknown)
	w.waits("a", gone)
	return w
}

// TestLongerSilenceDelaysFence lets nodes renew their Leases rarely, so that the policy's own patience is too short.
func TestLongerSilenceDelaysFence(t *testing.T) {
	w := outage(t)
	w.restart(Config{SilentAfter: 5 * time.Minute})
	w.pass(4 * time.Minute)
	w.wantPhase("a", "none")
	w.wantJudgement("a", fencing.ReasonPatience)
	w.pass(2 * time.Minute)
	w.wantPhase("a", v1alpha1.PhaseFencing)
}

func TestUnreachableNodeIsFenced(t *testing.T) {
	metrics := prometheus.NewRegistry()
	w := outage(t)
	w.restart(Config{Settings: controllers.Settings{Metrics: metrics}})
	w.pass(time.Minute)
	w.wantPhase("a", "none")
	w.wantJudgement("a", fencing.ReasonPatience)
	if n := figures(t, metrics)["csi_reclaimer_fence_policy_waiting_nodes{Patience}"]; n != 1 {
		t.Errorf("%v nodes wait", n)
	}
	w.pass(30 * time.Second)
	w.wantPhase("a", v1alpha1.PhaseFencing)
	w.wantJudgement("a", fencing.ReasonFenceExists)
	if all := figures(t, metrics); all["csi_reclaimer_fence_policy_waiting_nodes{Patience}"] != 0 ||
		all["csi_reclaimer_fence_waiting_nodes{Fencing}"] != 1 {
		t.Errorf("%v", all)
	}
	if o := w.fences["a"]; o.Labels["velero.io/exclude-from-backup"] != "true" || o.Spec.PolicyName != "p" ||
		len(o.Spec.Agents) != 1 || !strings.Contains(o.Spec.Reason, "p") {
		t.Errorf("the NodeFence is %+v, with labels %v", o.Spec, o.Labels)
	}
	if s := w.policies["p"].Status; s.Fences != 1 || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionActive) {
		t.Errorf("the status is %+v", s)
	}
	w.runs["off"] = fencing.RunSucceeded
	w.pass(leasePoll)
	w.wantPhase("a", v1alpha1.PhaseReleased)
	if !w.tainted() {
		t.Error("the node is not tainted")
	}
	w.node("a", v1.ConditionTrue, func(o *v1.Node) { o.Status.NodeInfo.BootID = "boot-2" })
	w.pass(2 * leasePoll)
	w.wantPhase("a", v1alpha1.PhaseReturned)
	if s := w.policies["p"].Status; s.Fences != 0 || len(s.Nodes) != 0 || w.tainted() {
		t.Errorf("after the return: %+v", s)
	}
	w.took()
	w.pass(time.Minute)
	if calls := w.took(); len(calls) > 0 {
		t.Errorf("at rest: %q", calls)
	}
	w.pass(2 * time.Hour)
	w.wantPhase("a", "none")
}

// Live reads before the creation of the NodeFence overrule the watches.
func TestLiveReadsOverruleWatches(t *testing.T) {
	for name, c := range map[string]struct {
		before string
		change func(w *world)
	}{
		"the node is Ready":         {"get whole node", func(w *world) { w.node("a", v1.ConditionTrue) }},
		"the node is not Ready":     {"get whole node", func(w *world) { w.node("a", v1.ConditionFalse) }},
		"the node is gone":          {"get whole node", func(w *world) { delete(w.nodes, "a") }},
		"the node is not selected":  {"get whole node", func(w *world) { w.node("a", v1.ConditionUnknown, controlPlane) }},
		"the Lease is renewed":      {"get lease", func(w *world) { w.leases["a"]++ }},
		"the Lease is gone":         {"get lease", func(w *world) { delete(w.leases, "a") }},
		"the policy is gone":        {"get policy", func(w *world) { delete(w.policies, "p") }},
		"the policy is another one": {"get policy", func(w *world) { w.policies["p"].UID = "other" }},
		"the policy is terminating": {"get policy", func(w *world) {
			w.policies["p"].DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
		}},
		"the policy has changed":   {"get policy", func(w *world) { w.policies["p"].Generation++ }},
		"another node is fenced":   {"list fences", func(w *world) { w.ask("b", agent("off")) }},
		"the node is fenced":       {"list fences", func(w *world) { w.ask("a", agent("off")) }},
		"a node that is not there": {"list fences", func(w *world) { w.ask("z", agent("off")) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := outage(t)
			w.pass(time.Minute)
			done := false
			w.hook = func(call string) {
				if call == c.before && !done {
					done = true
					c.change(w)
				}
			}
			w.clock.Step(leasePoll)
			w.leases["b"]++
			w.pollOnce(t.Context())
			w.sync()
			w.took()
			w.reconcilePolicy(t.Context(), "p")
			if calls := w.took(); !done || slices.Contains(calls, "create fence of a") {
				t.Errorf("done %t, calls %q", done, calls)
			}
		})
	}
}

// fencedInForce adds a NodeFence whose agent has something to undo, and whose condition Fenced has this reason.
func (w *world) fencedInForce(name string, why fencing.Reason) {
	undone := agent("off")
	undone.Job.Undo = true
	w.ask(name, undone)
	f := w.fences[name]
	f.Finalizers = []string{fencing.Finalizer}
	f.Status.Proof = &v1alpha1.Proof{Attempt: 1, Agent: "off", Covers: v1alpha1.CoversUntilUnfenced}
	f.Status.Attempts = []v1alpha1.Attempt{{Number: 1, Agent: "off", Result: v1alpha1.ResultProven,
		EndedAt: &metav1.Time{}}}
	f.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue,
		Reason: string(why)}}
}

// A fence may last as long as a repair, so the status names the fenced nodes to a person who waits for its end.
func TestPolicyStatusNamesFencedNodes(t *testing.T) {
	w := outage(t)
	w.ask("b", agent("slow"))
	w.pass(2 * time.Minute)
	if s := w.policies["p"].Status; len(s.Nodes) != 1 || !strings.HasSuffix(s.Nodes[0].Message, " Fenced: b.") {
		t.Errorf("%+v", s.Nodes)
	}
	many := strings.Split("abcdefghijkl", "")
	j := fencing.Judgement{Node: "n", Reason: fencing.ReasonZoneLimitReached}
	got := judgement(&v1alpha1.FencePolicy{}, j, many, w.clock.Now()).Message
	if !strings.HasSuffix(got, "h, i, j and 2 more.") {
		t.Error(got)
	}
}

func controlPlane(o *v1.Node) { o.Labels[objects.ControlPlaneLabel] = "" }

func TestPolicyJudgements(t *testing.T) {
	inForever := func(w *world) { w.waits("a", Waiting{namespace: "ns"}) }
	for name, c := range map[string]struct {
		policy func(*v1alpha1.FencePolicySpec)
		world  func(*world)
		want   fencing.Reason
		fenced bool
	}{
		"unchanged":          {nil, nil, fencing.ReasonFenceExists, true},
		"no pod waits":       {nil, func(w *world) { w.waits("a") }, fencing.ReasonNothingWaits, false},
		"a pod tolerates it": {nil, inForever, fencing.ReasonTolerated, false},
		"that is not waited for": {func(s *v1alpha1.FencePolicySpec) { s.WaitForTolerations = new(bool) }, inForever,
			fencing.ReasonFenceExists, true},
		"the policy is a dry run": {func(s *v1alpha1.FencePolicySpec) { s.DryRun = true }, nil, fencing.ReasonWouldFence,
			false},
		"a control-plane node": {nil, func(w *world) { w.node("a", v1.ConditionUnknown, controlPlane) }, "", false},
		"that is allowed": {func(s *v1alpha1.FencePolicySpec) { s.AllowControlPlane = true },
			func(w *world) { w.node("a", v1.ConditionUnknown, controlPlane) }, fencing.ReasonFenceExists, true},
		"not selected": {func(s *v1alpha1.FencePolicySpec) { s.NodeSelector.MatchLabels = map[string]string{"x": "y"} }, nil,
			"", false},
		"selected": {func(s *v1alpha1.FencePolicySpec) { s.NodeSelector.MatchLabels = map[string]string{"x": "y"} },
			func(w *world) { w.node("a", v1.ConditionUnknown, func(o *v1.Node) { o.Labels["x"] = "y" }) },
			fencing.ReasonFenceExists, true},
		"a namespace that is not selected": {inProduction, nil, fencing.ReasonNothingWaits, false},
		"a namespace that is selected": {inProduction,
			func(w *world) { w.spaces["ns"] = map[string]string{"env": "production"} }, fencing.ReasonFenceExists, true},
		"a budget that is healthy":     {budgetPatience, func(w *world) { w.budget(true) }, fencing.ReasonPatience, false},
		"a budget that is not healthy": {budgetPatience, func(w *world) { w.budget(false) }, fencing.ReasonFenceExists, true},
		"two budgets, one not healthy": {budgetPatience, func(w *world) { w.budget(true); w.budget(false) },
			fencing.ReasonFenceExists, true},
		"no budget": {budgetPatience, nil, fencing.ReasonFenceExists, true},
		"most nodes are unreachable": {nil, func(w *world) { w.node("b", v1.ConditionUnknown) },
			fencing.ReasonManyUnreachable, false},
		"a whole zone is unreachable": {func(s *v1alpha1.FencePolicySpec) { s.HaltAbove = 100 }, func(w *world) {
			w.node("a", v1.ConditionUnknown, inZone)
			w.node("b", v1.ConditionUnknown, inZone)
		}, fencing.ReasonZoneUnreachable, false},
		"another node is fenced": {nil, func(w *world) { w.ask("b", agent("slow")) },
			fencing.ReasonLimitReached, false},
		"a node whose Node was deleted is fenced": {nil, func(w *world) { w.fencedInForce("gone", fencing.ReasonFenced) },
			fencing.ReasonLimitReached, false},
		"and nothing remained on it": {nil, func(w *world) { w.fencedInForce("gone", fencing.ReasonNodeDeleted) },
			fencing.ReasonFenceExists, true},
		"but it is there again": {nil, func(w *world) {
			w.node("b", v1.ConditionTrue)
			w.fencedInForce("b", fencing.ReasonNodeDeleted)
		}, fencing.ReasonLimitReached, false},
		"another node of its zone is fenced": {func(s *v1alpha1.FencePolicySpec) { s.MaxFences.IntVal = 2 }, func(w *world) {
			w.node("a", v1.ConditionUnknown, inZone)
			w.node("b", v1.ConditionTrue, inZone)
			w.ask("b", agent("slow"))
		}, fencing.ReasonZoneLimitReached, false},
	} {
		t.Run(name, func(t *testing.T) {
			change := c.policy
			if change == nil {
				change = func(*v1alpha1.FencePolicySpec) {}
			}
			w := outage(t, change)
			if c.world != nil {
				c.world(w)
			}
			w.pass(2 * time.Minute)
			w.wantJudgement("a", c.want)
			if fenced := w.fences["a"] != nil; fenced != c.fenced {
				t.Errorf("fenced %t", fenced)
			}
		})
	}
}

func inProduction(s *v1alpha1.FencePolicySpec) {
	s.NamespaceSelector.MatchLabels = map[string]string{"env": "production"}
}

func budgetPatience(s *v1alpha1.FencePolicySpec) { s.BudgetPatience.Duration = time.Hour }

func (w *world) budget(healthy bool) {
	w.budgets["ns"] = append(w.budgets["ns"], budget{labels.SelectorFromSet(labels.Set{"app": "db"}), healthy})
}

// While no node renews its Lease, this process may be cut off.
func TestNoFenceWithoutView(t *testing.T) {
	w := outage(t)
	w.pass(leasePoll)
	for _, name := range []string{"b", "c"} { // they are Ready, and their renewals do not arrive
		w.nodes[name].Status.Conditions = nil
		w.nodes[name].Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady}}
	}
	w.pass(5 * time.Minute)
	w.wantPhase("a", "none")
	w.wantJudgement("a", fencing.ReasonViewLost)
	active := meta.FindStatusCondition(w.policies["p"].Status.Conditions, v1alpha1.ConditionActive)
	if active.Status != metav1.ConditionFalse || active.Reason != string(fencing.ReasonViewLost) {
		t.Errorf("condition %+v", active)
	}
}

func TestNoFenceWithoutLeaseList(t *testing.T) {
	w := outage(t)
	w.fail["list leases"] = errNoAnswer
	w.pass(10 * time.Minute)
	w.wantPhase("a", "none")
	if all := w.reasons(); len(all) != 1 {
		t.Errorf("Events %q", all)
	}
	delete(w.fail, "list leases")
	w.pass(30 * time.Second)
	w.wantPhase("a", "none")
	w.pass(time.Minute)
	w.wantPhase("a", v1alpha1.PhaseFencing)
}

// Each sign of life restarts the silence, and so does another process.
func TestSilenceRestarts(t *testing.T) {
	for name, sign := range map[string]func(*world){
		"its Lease is renewed": func(w *world) { w.leases["a"]++ },
		"it is Ready for a moment": func(w *world) {
			w.node("a", v1.ConditionTrue)
			w.sync()
			w.node("a", v1.ConditionUnknown)
		},
		"another process": func(w *world) { w.restart(Config{}) },
	} {
		w := outage(t)
		w.pass(50 * time.Second)
		sign(w)
		w.pass(50 * time.Second)
		if w.fences["a"] != nil {
			t.Errorf("%s: it is fenced too early", name)
		}
		w.pass(time.Minute)
		if w.fences["a"] == nil {
			t.Errorf("%s: it is not fenced", name)
		}
	}
}

func TestNodesAreFencedOneByOne(t *testing.T) {
	w := outage(t)
	for _, name := range []string{"d", "e", "f"} {
		w.node(name, v1.ConditionTrue)
	}
	w.pass(leasePoll)
	w.node("b", v1.ConditionUnknown)
	w.waits("b", gone)
	w.policy("q") // its limit counts the fences of all policies
	w.pass(80 * time.Second)
	w.wantPhase("a", v1alpha1.PhaseFencing)
	w.wantPhase("b", "none")
	w.wantJudgement("b", fencing.ReasonLimitReached)
	w.node("a", v1.ConditionTrue)
	w.runs["off"] = fencing.RunFailed
	w.pass(leasePoll)
	w.runs = map[string]fencing.RunState{}
	w.pass(3 * leasePoll)
	w.wantPhase("a", v1alpha1.PhaseReturned)
	if w.fences["b"] == nil {
		t.Error("node b is not fenced")
	}
}

// The name is free again only when the ended NodeFence is gone.
func TestNodeIsFencedAgain(t *testing.T) {
	w := outage(t)
	w.pass(90 * time.Second)
	first := w.fences["a"].UID
	w.runs["off"] = fencing.RunSucceeded
	w.pass(leasePoll)
	w.node("a", v1.ConditionTrue, func(o *v1.Node) { o.Status.NodeInfo.BootID = "boot-2" })
	w.pass(2 * leasePoll)
	w.wantPhase("a", v1alpha1.PhaseReturned)
	w.runs = map[string]fencing.RunState{}
	w.node("a", v1.ConditionUnknown)
	w.pass(2 * time.Minute)
	w.wantPhase("a", v1alpha1.PhaseFencing)
	if w.fences["a"].UID == first {
		t.Error("it is the first NodeFence")
	}
}

// A NodeFence that has ended and cannot be deleted keeps its name, which is reported.
func TestEndedFenceThatCannotBeDeleted(t *testing.T) {
	w := outage(t)
	w.pass(90 * time.Second)
	w.runs["off"] = fencing.RunSucceeded
	w.pass(leasePoll)
	w.node("a", v1.ConditionTrue, func(o *v1.Node) { o.Status.NodeInfo.BootID = "boot-2" })
	w.pass(2 * leasePoll)
	w.wantPhase("a", v1alpha1.PhaseReturned)
	w.fail["delete fence"] = errclass.Mark(errclass.Refused, errNoAnswer)
	w.node("a", v1.ConditionUnknown)
	w.pass(2 * time.Minute)
	w.wantPhase("a", v1alpha1.PhaseReturned)
	if waiting := w.policyReports.Waiting(); waiting[fencing.ReasonAPIWriteFailed] != 1 {
		t.Errorf("%v waits", waiting)
	}
	if got := w.reconcilePolicy(t.Context(), "p"); got != controller.Retries(w.cfg.Settings).Slow() {
		t.Errorf("due again %+v", got)
	}
}

// A person ends the fence of a node that is still unreachable. The policy fences it again only without that NodeFence.
func TestUnfencedNodeIsNotFencedAgain(t *testing.T) {
	w := outage(t)
	w.pass(90 * time.Second)
	w.fences["a"].Spec.Unfence = v1alpha1.UnfenceNow
	w.put(w.fences["a"])
	w.pass(5 * time.Minute)
	w.wantPhase("a", v1alpha1.PhaseReturned)
	w.wantJudgement("a", fencing.ReasonFenceEnded)
	first := w.fences["a"].UID
	w.pass(time.Hour) // --keep-returned-fences
	w.pass(2 * time.Minute)
	if w.fences["a"] == nil || w.fences["a"].UID == first {
		t.Error("no new NodeFence after the deletion of the first")
	}
}

func TestPolicyDryRunMakesNoWrites(t *testing.T) {
	w := outage(t)
	w.restart(Config{Settings: controllers.Settings{DryRun: true}})
	w.took()
	w.pass(5 * time.Minute)
	for _, call := range w.took() {
		if !strings.HasPrefix(call, "get ") && !strings.HasPrefix(call, "list ") {
			t.Errorf("a dry run: %s", call)
		}
	}
}

// An unchanged status is not written, and Events do not repeat.
func TestIdlePolicyMakesNoWrites(t *testing.T) {
	w := outage(t, func(s *v1alpha1.FencePolicySpec) { s.DryRun = true })
	w.pass(2 * time.Minute)
	w.took()
	w.reasons()
	w.pass(5 * time.Minute)
	if all := w.reasons(); slices.Contains(w.took(), "status of policy") || len(all) > 0 {
		t.Errorf("a status or Events %q are written", all)
	}
}

// boundPod is a pod with a claim that runs on a node.
func boundPod(alter ...func(*v1.Pod)) *v1.Pod {
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0", UID: "uid-1", Labels: map[string]string{"app": "db"}},
		Spec: v1.PodSpec{NodeName: "node-1", Containers: []v1.Container{{Name: "c"}}, Volumes: []v1.Volume{{Name: "data",
			VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
	for _, change := range alter {
		change(o)
	}
	return o
}

func isHeld(o *v1.Pod)        { o.Finalizers = []string{objects.RunningFinalizer} }
func isTerminating(o *v1.Pod) { o.DeletionTimestamp = &metav1.Time{} }
func isClaimless(o *v1.Pod)   { o.Spec.Volumes = nil }
func hasSucceeded(o *v1.Pod) {
	o.Status.Phase = v1.PodSucceeded
	o.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c",
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
}

// A policy that waits for tolerations does not wait for long ones, and one that does not wait counts each pod.
func TestLongTolerationsDelayNoPolicy(t *testing.T) {
	for patient, want := range map[bool][2]int{true: {2, 1}, false: {3, 2}} {
		w := newWorld(t, Config{})
		w.pods = map[string][]Waiting{"a": {{}, {long: true}, {long: true, terminating: true}}}
		n, spec := fencing.NodeView{Name: "a"}, v1alpha1.FencePolicySpec{WaitForTolerations: &patient}
		p := &v1alpha1.FencePolicy{Spec: spec}
		if must.OK(t, countPods(t.Context(), w, p, []*fencing.NodeView{&n})); [2]int{n.Waiting, n.Tolerating} != want {
			t.Errorf("waits for tolerations %t: %+v, want %v", patient, n, want)
		}
	}
}

func TestWaitingOf(t *testing.T) {
	owned := func(kind string) func(*v1.Pod) {
		return func(o *v1.Pod) { o.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: ptr.To(true)}} }
	}
	tolerates := func(key string, seconds ...*int64) func(*v1.Pod) {
		return func(o *v1.Pod) {
			for _, s := range seconds {
				o.Spec.Tolerations = append(o.Spec.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists,
					Effect: v1.TaintEffectNoExecute, TolerationSeconds: s})
			}
		}
	}
	limit := ptr.To[int64](300)
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"running":                           {boundPod(), true},
		"of a ReplicaSet":                   {boundPod(owned("ReplicaSet")), true},
		"of a DaemonSet":                    {boundPod(owned("DaemonSet")), false},
		"of a kubelet":                      {boundPod(mirrored), false},
		"one without a claim":               {boundPod(isClaimless), false},
		"ended":                             {boundPod(hasSucceeded), false},
		"ended and held":                    {boundPod(isHeld, hasSucceeded), false},
		"ended and terminating":             {boundPod(isTerminating, hasSucceeded), false},
		"ended, terminating and held":       {boundPod(isHeld, isTerminating, hasSucceeded), true},
		"terminating and held":              {boundPod(isHeld, isTerminating), true},
		"it stays for years":                {boundPod(tolerates(v1.TaintNodeUnreachable, ptr.To[int64](9e9))), true},
		"it stays for ever":                 {boundPod(tolerates(v1.TaintNodeUnreachable, nil)), false},
		"it was deleted since":              {boundPod(tolerates(v1.TaintNodeUnreachable, nil), isTerminating), true},
		"it stays for some time":            {boundPod(tolerates(v1.TaintNodeUnreachable, limit)), true},
		"it stays for the shorter of two":   {boundPod(tolerates(v1.TaintNodeUnreachable, nil, limit)), true},
		"it tolerates something else alone": {boundPod(tolerates(v1.TaintNodeNotReady, nil)), true},
	} {
		got, waits := WaitingOf(c.pod)
		if waits != c.want {
			t.Errorf("%s: waits %t", name, waits)
		}
		if long := strings.HasSuffix(name, "for years"); waits && !got.terminating && got.long != long {
			t.Errorf("%s: long %t", name, got.long)
		}
		if waits && (got.namespace != "ns" || got.labels["app"] != "db" ||
			got.terminating != (c.pod.DeletionTimestamp != nil)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func mirrored(o *v1.Pod) { o.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} }
