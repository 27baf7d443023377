package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// While a fact cannot be read, no node is fenced. That is reported until it is over.
func TestUnreadablePolicyFactsFenceNoNode(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"list pods of a", "get namespace ns", "list budgets of ns", "get policy", "list fences",
		"get whole node", "get lease", "create fence of a"} {
		w := outage(t, inProduction, budgetPatience)
		w.spaces["ns"] = map[string]string{"env": "production"}
		w.fail[call] = errNoAnswer
		w.pass(3 * time.Minute)
		w.wantPhase("a", "none")
		reason := fencing.ReasonAPIReadFailed
		if strings.HasPrefix(call, "create") {
			reason = fencing.ReasonAPIWriteFailed
		}
		w.wantJudgement("a", reason)
		w.wantActive(metav1.ConditionFalse, reason)
		if waiting := w.policyReports.Waiting(); waiting[reason] != 1 {
			t.Errorf("%s: %v waits", call, waiting)
		}
		if got := w.reconcilePolicy(t.Context(), "p"); got != controller.Retries(w.cfg.Settings).Retry() {
			t.Errorf("%s: due again %+v", call, got)
		}
		delete(w.fail, call)
		w.pass(time.Minute)
		if waiting := w.policyReports.Waiting(); w.fences["a"] == nil || len(waiting) > 0 {
			t.Errorf("after %s: fenced %t, %v waits", call, w.fences["a"] != nil, waiting)
		}
		w.wantActive(metav1.ConditionTrue, reasonActive)
	}
}

func TestInvalidSelectorsFenceNoNode(t *testing.T) {
	t.Parallel()
	wrong := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a"}}}
	for name, change := range map[string]func(*v1alpha1.FencePolicySpec){
		"nodeSelector":      func(s *v1alpha1.FencePolicySpec) { s.NodeSelector = wrong },
		"namespaceSelector": func(s *v1alpha1.FencePolicySpec) { s.NamespaceSelector = wrong },
	} {
		w := newWorld(t, Config{})
		w.node("a", v1.ConditionTrue)
		w.policy("p", change)
		w.pass(leasePoll)
		w.wantActive(metav1.ConditionFalse, fencing.ReasonInvalidSelector) // before it is needed
		w = outage(t, change)
		w.pass(3 * time.Minute)
		w.wantPhase("a", "none")
		w.wantActive(metav1.ConditionFalse, fencing.ReasonInvalidSelector)
		p, _ := w.observer.policies.Get("p")
		if _, err := w.policyFacts(t.Context(), p); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each namespace is read once, and only if the policy depends on it.
func TestNamespacesAreReadOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		alter []func(*v1alpha1.FencePolicySpec)
		want  []string
	}{
		"by default": {nil, []string{"list pods of a"}},
		"with both": {[]func(*v1alpha1.FencePolicySpec){inProduction, budgetPatience},
			[]string{"list pods of a", "get namespace ns", "list budgets of ns"}},
	} {
		w := outage(t, c.alter...)
		w.spaces["ns"] = map[string]string{"env": "production"}
		w.budget(true)
		w.waits("a", gone, gone)
		w.node("other", v1.ConditionUnknown, controlPlane)
		w.sync()
		w.took()
		p, _ := w.observer.policies.Get("p")
		f, err := w.policyFacts(t.Context(), p)
		if calls := w.took(); err != nil || !slices.Equal(calls, c.want) {
			t.Errorf("%s: %q, %v", name, calls, err)
		}
		if f.Nodes[0].Waiting != 2 {
			t.Errorf("%s: %d pods wait", name, f.Nodes[0].Waiting)
		}
		for _, n := range f.Nodes {
			if want := n.Name == "a" && len(c.alter) > 0; n.Budgeted != want {
				t.Errorf("%s: node %s is kept by budgets: %t", name, n.Name, n.Budgeted)
			}
			if !n.Unreachable && !n.Since.IsZero() {
				t.Errorf("%s: node %s is silent since %s", name, n.Name, n.Since)
			}
		}
		w.ask("a")
		w.sync()
		if f, err = w.policyFacts(t.Context(), p); err != nil || !f.Nodes[0].Fenced || len(w.took()) > 0 {
			t.Errorf("%s: a fenced node is asked for: %+v, %v", name, f.Nodes, err)
		}
	}
}

// The status counts the policy's own fences, and the time of a judgement stays with its reason.
func TestPolicyStatus(t *testing.T) {
	t.Parallel()
	w := outage(t)
	w.ask("b")
	w.ask("c")
	w.fences["c"].Spec.PolicyName = "p"
	w.sync()
	before, now := metav1.NewTime(w.clock.Now().Add(-time.Hour)), w.clock.Now()
	p := policyNamed("p", "uid")
	p.Status.Nodes = []v1alpha1.NodeJudgement{{Name: "a", Reason: string(fencing.ReasonPatience), Since: before},
		{Name: "b", Reason: string(fencing.ReasonTolerated), Since: before}}
	d := fencing.PolicyDecision{Halted: fencing.ReasonViewLost, Fenced: []string{"c"}, Nodes: []fencing.Judgement{
		{Node: "a", Reason: fencing.ReasonPatience}, {Node: "b", Reason: fencing.ReasonPatience}}}
	s := w.policyStatus(p, d, now)
	if s.Fences != 1 || len(s.Nodes) != 2 || !s.Nodes[0].Since.Equal(&before) || !s.Nodes[1].Since.Time.Equal(now) ||
		strings.Contains(s.Nodes[0].Message, "Fenced: ") {
		t.Errorf("%+v", s)
	}
	active := func(s v1alpha1.FencePolicyStatus) string {
		return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionActive).Reason
	}
	if got := active(s); got != string(fencing.ReasonViewLost) {
		t.Errorf("halted: %s", got)
	}
	p.Spec.DryRun = true
	if got := active(w.policyStatus(p, d, now)); got != string(fencing.ReasonDryRun) {
		t.Errorf("a dry run: %s", got)
	}
}

// A node with a NodeFence is reported there.
func TestReportsOfJudgements(t *testing.T) {
	t.Parallel()
	for _, dryRun := range []bool{false, true} {
		w := newWorld(t, Config{Settings: controllers.Settings{DryRun: dryRun}})
		p := policyNamed("p", "uid")
		w.reportNodes(t.Context(), p, fencing.PolicyDecision{Nodes: []fencing.Judgement{
			{Node: "a", Reason: fencing.ReasonFenceExists}, {Node: "b", Reason: fencing.ReasonUnreachable},
			{Node: "c", Reason: fencing.ReasonLimitReached}}})
		want := map[fencing.Reason]int{fencing.ReasonLimitReached: 1, fencing.ReasonUnreachable: 1}
		if dryRun {
			want = map[fencing.Reason]int{fencing.ReasonLimitReached: 1, fencing.ReasonWouldFence: 1}
		}
		waiting := w.judgements.Waiting()
		for reason, n := range want {
			if waiting[reason] != n {
				t.Errorf("dry run %t: %v waits, want %v", dryRun, waiting, want)
			}
		}
		if judged := w.observer.judged["uid"]; len(judged) != 2 {
			t.Errorf("dry run %t: reports on %v", dryRun, judged)
		}
		if w.reportNodes(t.Context(), p, fencing.PolicyDecision{}); len(w.observer.judged) > 0 {
			t.Errorf("left: %v", w.observer.judged)
		}
	}
}

// A policy that is gone or terminating fences no node.
func TestEndedPolicyFencesNoNode(t *testing.T) {
	t.Parallel()
	w := outage(t)
	w.pass(50 * time.Second)
	w.policies["p"].DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
	w.policies["p"].ResourceVersion = w.version()
	w.pass(time.Minute)
	w.took()
	for _, name := range []string{"p", "none"} {
		if got := w.reconcilePolicy(t.Context(), name); got != controller.Done() || len(w.took()) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	w.wantPhase("a", "none")
}

// Without a policy, or an unreachable node, nothing depends on Leases.
func TestSilenceMattersToPoliciesOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.node("a", v1.ConditionUnknown)
	if w.sync(); w.observer.looksForSilence() {
		t.Error("without a policy")
	}
	w.policy("p")
	if w.sync(); !w.observer.looksForSilence() {
		t.Error("with a policy")
	}
	w.node("a", v1.ConditionTrue)
	if w.sync(); w.observer.looksForSilence() {
		t.Error("with a reachable node")
	}
}

func TestView(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	v := newView(40 * time.Second)
	expect := func(when string, s int, is, known bool) {
		t.Helper()
		if gotIs, gotKnown := v.clear(at(s)); gotIs != is || gotKnown != known {
			t.Errorf("%s: clear %t, known %t", when, gotIs, gotKnown)
		}
	}
	expect("nothing was listed", 0, false, false)
	v.saw(map[string]string{"a": "1", "b": "1"}, []string{"a"}, at(100))
	expect("first list", 110, false, false)
	expect("no renewal for long", 141, false, true)
	v.saw(map[string]string{"a": "1", "b": "1", "new": "1"}, []string{"a"}, at(150))
	expect("a new node is no renewal", 150, false, true)
	v.saw(map[string]string{"a": "1", "b": "2"}, []string{"a"}, at(160))
	expect("a renewal", 200, true, true)
	if since, version := v.since("a"); !since.Equal(at(100)) || version != "1" {
		t.Errorf("silent since %s at version %s", since, version)
	}
	v.rest()
	expect("at rest", 161, false, false)
	if since, version := v.since("a"); !since.IsZero() || version != "" {
		t.Errorf("at rest, silent since %s at version %s", since, version)
	}
}

// A release tries each object, and its error names the remaining ones.
func TestReleaseErrorNamesRemainingObjects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail   map[string]error
		left   []string
		fences int
	}{
		"all go": {nil, nil, 2},
		"the fences are refused": {map[string]error{"finalizer false": errNoAnswer},
			[]string{"NodeFence a", "NodeFence b"}, 0},
		"the fences are gone":      {map[string]error{"finalizer false": kube.ErrGone}, nil, 0},
		"the node is gone":         {map[string]error{"taint false": kube.ErrGone}, nil, 2},
		"the node cannot be freed": {map[string]error{"taint false": errNoAnswer}, []string{"Node a"}, 2},
	} {
		w := requested(t, Config{})
		w.fencedInForce("a", fencing.ReasonFenced)
		w.fencedInForce("b", fencing.ReasonFenced)
		w.fencedInForce("over", fencing.ReasonFenced)
		meta.SetStatusCondition(&w.fences["over"].Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReturned,
			Status: metav1.ConditionTrue})
		w.fences["over"].Finalizers = nil
		w.node("a", v1.ConditionUnknown, func(o *v1.Node) {
			o.Spec.Taints = []v1.Taint{{Key: "csi-reclaimer.io/volumes-fenced"}}
		})
		w.fail = c.fail
		if w.fail == nil {
			w.fail = map[string]error{}
		}
		done, err := w.releaseAll(t.Context(), false)
		if !slices.Equal(done.Left, c.left) || done.Fences != c.fences || len(done.Active) != 2 ||
			(err != nil) != (c.left != nil) || err != nil && !errors.Is(err, errNoAnswer) {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		tries := times(w.took(), "list nodes")
		if want := map[bool]int{true: 1, false: releaseTries}[err == nil]; tries != want {
			t.Errorf("%s: %d tries, want %d", name, tries, want)
		}
	}
}

// A pod in a namespace that the policy does not select does not count, and neither does another pod's budget.
func TestPodsThatDoNotCount(t *testing.T) {
	t.Parallel()
	w := outage(t, inProduction)
	w.waits("a", gone, gone)
	w.sync()
	p, _ := w.observer.policies.Get("p")
	if f, err := w.policyFacts(t.Context(), p); err != nil || f.Nodes[0].Waiting != 0 {
		t.Errorf("%+v, %v", f.Nodes, err)
	}
	w.budget(false)
	if isBudgeted(Waiting{labels: map[string]string{"app": "web"}}, w.budgets["ns"]) {
		t.Error("another pod's budget keeps the pod")
	}
	w.budgets["ns"][0].healthy = true
	if isBudgeted(Waiting{labels: map[string]string{"app": "web"}}, w.budgets["ns"]) {
		t.Error("a healthy budget of another pod keeps the pod")
	}
}

// times returns how often a word is among all.
func times(all []string, word string) int {
	return len(all) - len(slices.DeleteFunc(slices.Clone(all), func(one string) bool { return one == word }))
}

// A node is fenced and reported once, however many the limits allow.
func TestEachNodeIsFencedOnce(t *testing.T) {
	t.Parallel()
	w := outage(t, func(s *v1alpha1.FencePolicySpec) { s.MaxFences.IntVal, s.MaxFencesPerZone = 2, 2 })
	w.reasons()
	w.took()
	w.pass(2 * time.Minute)
	created := times(w.took(), "create fence of a")
	reported := times(w.reasons(), "Unreachable")
	if created != 1 || reported != 2 { // on the policy, and on the node
		t.Errorf("%d NodeFences, %d Events", created, reported)
	}
}

// The Leases are listed at intervals while a node is unreachable, and wake the policies.
func TestLeasesArePolledDuringOutage(t *testing.T) {
	w := newWorld(t, Config{})
	w.node("a", v1.ConditionUnknown)
	w.policy("p")
	w.sync()
	synctest.Test(t, func(t *testing.T) {
		woken := &recording{}
		w.observer.wake = woken.wake()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.pollLeases(ctx)
		synctest.Wait()
		if calls := w.took(); !slices.Equal(calls, []string{"list leases"}) ||
			!slices.Equal(woken.all, []string{"policy p"}) {
			t.Errorf("calls %q, woken %q", calls, woken.all)
		}
		if _, version := w.view.since("a"); version == "" {
			t.Error("the list is not seen")
		}
		w.node("a", v1.ConditionTrue)
		w.sync()
		w.clock.Step(leasePoll)
		synctest.Wait()
		if _, version := w.view.since("a"); version != "" || len(w.took()) > 0 {
			t.Error("the Leases are listed, or known, at rest")
		}
	})
}

// Without the kinds only Nodes are released. An API server that does not answer proves no absence.
func TestReleaseWithoutKinds(t *testing.T) {
	t.Parallel()
	const group = "/csi-reclaimer.io/v1alpha1"
	kinds := `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"csi-reclaimer.io/v1alpha1","resources":[` +
		`{"name":"nodefences"},{"name":"fencepolicies"}]}`
	held := objectOf("NodeFence", `,"uid":"uid","finalizers":["`+fencing.Finalizer+`"]`, "")
	for name, c := range map[string]struct {
		answers map[string]string
		fences  int
		fails   bool
	}{
		"with the kinds": {map[string]string{group: kinds, "/nodefences": list("NodeFence", held),
			"GET /nodefences/a": held, "PATCH /nodefences/a": objectOf("NodeFence", `,"uid":"uid"`, ""),
			"/nodes": list("Node")}, 1, false},
		"without":   {map[string]string{group: notFound, "/nodes": list("Node")}, 0, false},
		"no answer": {map[string]string{"/nodes": list("Node"), "/nodefences": list("NodeFence")}, 0, true},
	} {
		w := must.Get(New(kubetest.NewServer(t, c.answers).Config(), Config{}))(t)
		if done, err := w.Release(t.Context()); done.Fences != c.fences || (err != nil) != c.fails {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
	}
}

// The policy looks at the live state of the very node that it fences.
func TestAnotherNodeIsFencedAlone(t *testing.T) {
	t.Parallel()
	w := outage(t)
	w.node("a", v1.ConditionTrue)
	w.node("b", v1.ConditionUnknown)
	w.waits("b", gone)
	w.pass(2 * time.Minute)
	w.wantPhase("a", "none")
	w.wantPhase("b", v1alpha1.PhaseFencing)
}

// A report of a failure stays until the policy has worked again.
func TestReportOfPolicyOutlastsConflict(t *testing.T) {
	t.Parallel()
	w := outage(t)
	w.fail["list pods of a"] = errNoAnswer
	w.pass(time.Minute)
	for cause, want := range map[error]int{kube.ErrChanged: 1, errNoAnswer: 1} {
		w.fail["list pods of a"] = cause
		w.reconcilePolicy(t.Context(), "p")
		if waiting := w.policyReports.Waiting(); waiting[fencing.ReasonAPIReadFailed] != want {
			t.Errorf("%v: %v waits", cause, waiting)
		}
	}
}

// A node whose Lease is renewed has its whole patience again, although the next list of Leases is not made yet.
func TestRenewedLeaseRestartsSilence(t *testing.T) {
	t.Parallel()
	w := outage(t)
	w.pass(time.Minute)
	w.hook = func(call string) {
		if call == "get lease" {
			w.leases["a"]++
		}
	}
	w.clock.Step(30 * time.Second)
	w.reconcilePolicy(t.Context(), "p")
	if since, _ := w.view.since("a"); !since.IsZero() || w.fences["a"] != nil {
		t.Errorf("silent since %v, fenced %t", since, w.fences["a"] != nil)
	}
}

// A policy reads the pods of the nodes that its status lists, which are silent for longest, and of nodes that it may
// fence now.
func TestPolicyReadsPodsOfListedAndDueNodes(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		haltAbove int32
		waits     time.Duration
		fence     string
		want      int
	}{
		"it is halted":                 {60, time.Hour, "", maxJudged},
		"its patience runs":            {100, 0, "", maxJudged},
		"the nodes are due":            {100, time.Hour, "", maxJudged + 2},
		"it has fenced as many as may": {100, time.Hour, "n000", maxJudged},
	} {
		w := newWorld(t, Config{})
		w.node("ready", v1.ConditionTrue)
		w.policy("p", func(s *v1alpha1.FencePolicySpec) { s.HaltAbove = c.haltAbove })
		w.pass(leasePoll)
		w.node("z", v1.ConditionUnknown)
		w.pass(2 * leasePoll)
		for i := range maxJudged + 1 {
			w.node(fmt.Sprintf("n%03d", i), v1.ConditionUnknown)
		}
		w.sync()
		w.view.saw(map[string]string{"ready": "0"}, w.observer.unreachable(), w.clock.Now())
		w.clock.Step(c.waits)
		w.view.saw(map[string]string{"ready": "1"}, w.observer.unreachable(), w.clock.Now())
		if c.fence != "" {
			w.ask(c.fence, agent("a"))
			w.sync()
		}
		p, _ := w.observer.policies.Get("p")
		w.took()
		if _, err := w.policyFacts(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if calls := w.took(); len(calls) != c.want || !slices.Contains(calls, "list pods of z") {
			t.Errorf("%s: %d calls, want %d, with %q", sentence, len(calls), c.want, "list pods of z")
		}
	}
}
