package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

// wantActive checks the condition Active of policy p.
func (w *world) wantActive(status metav1.ConditionStatus, reason fencing.Reason) {
	w.Helper()
	active := meta.FindStatusCondition(w.policies["p"].Status.Conditions, v1alpha1.ConditionActive)
	if active == nil || active.Status != status || active.Reason != string(reason) {
		w.Errorf("the condition Active is %+v, want %s, %s", active, status, reason)
	}
}

var (
	errRefused  = apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("nodefences").GroupResource(), "a", nil)
	errInternal = apierrors.NewInternalError(errors.New("no etcd"))
)

// atOnce allows a policy to fence all nodes.
func atOnce(s *v1alpha1.FencePolicySpec) { s.MaxFences.IntVal, s.HaltAbove = 100, 100 }

// due is an outage of two nodes, both of which the next pass over the policy fences.
func due(t *testing.T, alter ...func(*world)) *world {
	t.Helper()
	w := outage(t, atOnce)
	w.node("b", v1.ConditionUnknown)
	w.waits("b", gone)
	for _, change := range alter {
		change(w)
	}
	w.pass(time.Minute)
	w.clock.Step(leasePoll)
	w.leases["c"]++
	w.pollOnce(t.Context())
	w.sync()
	w.took()
	return w
}

// ended gives node a a NodeFence that has ended.
func ended(w *world) {
	w.ask("a")
	meta.SetStatusCondition(&w.fences["a"].Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReturned,
		Status: metav1.ConditionTrue, Reason: string(fencing.ReasonNodeReady),
		LastTransitionTime: metav1.NewTime(w.clock.Now())})
}

// A step about one node that fails keeps no other node from its fence, unless its outcome is not known or it concerns
// all nodes.
func TestFailedNodeDelaysNoOtherNode(t *testing.T) {
	t.Parallel()
	read, write := fencing.ReasonAPIReadFailed, fencing.ReasonAPIWriteFailed
	for _, c := range []struct {
		call   string
		err    error
		alter  []func(*world)
		reason fencing.Reason
		fenced bool
	}{
		{"list pods of a", errRefused, nil, read, true},
		{"list pods of a", errNoAnswer, nil, read, false},
		{"get whole node", errInternal, nil, read, true},
		{"get whole node", errNoAnswer, nil, read, false},
		{"get lease", errInternal, nil, read, true},
		{"get lease", errNoAnswer, nil, read, false},
		{"create fence of a", errRefused, nil, write, true},
		{"create fence of a", errInternal, nil, write, false},
		{"create fence of a", errNoAnswer, nil, write, false},
		{"delete fence", errRefused, []func(*world){ended}, write, true},
		{"delete fence", errNoAnswer, []func(*world){ended}, write, false},
		{"get policy", errRefused, nil, read, false},
		{"list fences", errRefused, nil, read, false},
	} {
		w := due(t, c.alter...)
		made := false
		w.hook = func(call string) { // the first call is about node a
			if call == c.call {
				w.fail = map[string]error{}
				if !made {
					w.fail[call] = c.err
				}
				made = true
			}
		}
		w.reconcilePolicy(t.Context(), "p")
		name := fmt.Sprintf("%s: %v", c.call, c.err)
		if fenced := w.fences["b"] != nil; fenced != c.fenced || !made {
			t.Errorf("%s: node b is fenced: %t, calls %q", name, fenced, w.took())
		}
		w.wantJudgement("a", c.reason)
		w.wantActive(metav1.ConditionFalse, c.reason)
		if waiting := w.policyReports.Waiting(); waiting[c.reason] != 1 {
			t.Errorf("%s: %v waits", name, waiting)
		}
		if waiting := w.judgements.Waiting(); waiting[c.reason] == 0 {
			t.Errorf("%s: judgements %v", name, waiting)
		}
		if all := w.reasons(); times(all, string(c.reason)) != 1 {
			t.Errorf("%s: Events %q, want one of the failure", name, all)
		}
	}
}

// The deletion of a policy ends its metric, also if the watch shows it while a step fails, and also if the watch shows
// a new policy of the same name.
func TestPolicyDeletedWhileItFails(t *testing.T) {
	t.Parallel()
	for name, replaced := range map[string]bool{"deleted": false, "replaced": true} {
		w := due(t)
		w.fail["list pods of a"] = errNoAnswer
		w.hook = func(string) {
			if delete(w.policies, "p"); replaced {
				w.policy("p")
				w.policies["p"].UID = "new"
			}
			w.sync()
		}
		w.reconcilePolicy(t.Context(), "p")
		if policies, nodes := w.policyReports.Waiting(), w.judgements.Waiting(); len(policies)+len(nodes) > 0 {
			t.Errorf("%s: %v and %v wait", name, policies, nodes)
		}
	}
}

// A process that has not listed the Leases yet cannot tell whether it is cut off, so it reports neither.
func TestPolicyWaitsForFirstLeaseList(t *testing.T) {
	t.Parallel()
	w := outage(t)
	w.restart(Config{})
	w.took()
	w.reconcilePolicy(t.Context(), "p")
	if calls := w.took(); len(calls) > 0 {
		t.Errorf("calls %q before the first list of Leases", calls)
	}
	w.pass(30 * time.Second)
	w.wantJudgement("a", fencing.ReasonPatience)
}

// A change that a step finds ends the pass, and the next one decides by the new state.
func TestChangeEndsPass(t *testing.T) {
	t.Parallel()
	for _, changed := range []error{kube.ErrChanged, kube.ErrGone} {
		w := due(t)
		w.fail["create fence of a"] = fmt.Errorf("%w: %w", changed, errRefused)
		before := w.policies["p"].ResourceVersion
		w.reconcilePolicy(t.Context(), "p")
		if w.fences["b"] != nil || w.policies["p"].ResourceVersion != before || len(w.policyReports.Waiting()) > 0 {
			t.Errorf("%v: calls %q", changed, w.took())
		}
	}
}

// The replica ends, or loses leadership.
func TestPassThatIsCanceledHasNoReport(t *testing.T) {
	t.Parallel()
	w := due(t)
	w.view.failed(errNoAnswer)
	ctx, cancel := context.WithCancel(t.Context())
	w.hook = func(string) { cancel() }
	w.fail["list pods of a"] = context.Canceled
	w.reconcilePolicy(ctx, "p")
	if calls := w.took(); slices.Contains(calls, "status of policy") || len(w.policyReports.Waiting()) > 0 ||
		w.judgements.Waiting()[fencing.ReasonAPIReadFailed] > 0 {
		t.Errorf("calls %q, %v and %v wait", calls, w.policyReports.Waiting(), w.judgements.Waiting())
	}
}

func TestFailedPolicyStatusIsReported(t *testing.T) {
	t.Parallel()
	w := due(t)
	w.fail["status of policy"] = errNoAnswer
	w.reconcilePolicy(t.Context(), "p")
	if waiting := w.policyReports.Waiting(); waiting[fencing.ReasonAPIWriteFailed] != 1 || w.fences["a"] == nil {
		t.Errorf("%v waits, fenced %t", waiting, w.fences["a"] != nil)
	}
}

// An error that concerns all nodes is not tried for each of them.
func TestFailedNodesAreBounded(t *testing.T) {
	t.Parallel()
	for call, reason := range map[string]fencing.Reason{"list pods of n": fencing.ReasonAPIReadFailed,
		"create fence of n": fencing.ReasonAPIWriteFailed} {
		w := due(t, func(w *world) {
			for i := range 2 * mostFailed {
				name := fmt.Sprintf("n%02d", i)
				w.node(name, v1.ConditionUnknown)
				w.waits(name, gone)
			}
		})
		for i := range 2 * mostFailed {
			w.fail[fmt.Sprintf("%s%02d", call, i)] = errRefused
		}
		w.reconcilePolicy(t.Context(), "p")
		tries := 0
		for _, made := range w.took() {
			if strings.HasPrefix(made, call) {
				tries++
			}
		}
		if tries != mostFailed {
			t.Errorf("%s: %d tries, want %d", call, tries, mostFailed)
		}
		w.wantJudgement(fmt.Sprintf("n%02d", 2*mostFailed-1), reason)
	}
}

// Lists of Leases that begin to fail are reported as such, once, and not as a lost view.
func TestFailedLeaseListIsNoLostView(t *testing.T) {
	t.Parallel()
	metrics := prometheus.NewRegistry()
	w := outage(t)
	w.restart(Config{Settings: controllers.Settings{Metrics: metrics}})
	w.pass(2 * leasePoll)
	w.reasons()
	w.fail["list leases"] = errNoAnswer
	w.pass(5 * time.Minute)
	w.wantPhase("a", "none")
	w.wantJudgement("a", fencing.ReasonAPIReadFailed)
	w.wantActive(metav1.ConditionFalse, fencing.ReasonAPIReadFailed)
	if all := w.reasons(); len(all) != 1 {
		t.Errorf("Events %q, want one", all)
	}
	const waiting = "csi_reclaimer_fence_policies_waiting{APIReadFailed}"
	if n := figures(t, metrics)[waiting]; n != 1 {
		t.Errorf("%v policies wait", n)
	}
	delete(w.fail, "list leases")
	w.pass(leasePoll)
	w.wantPhase("a", v1alpha1.PhaseFencing)
	w.wantActive(metav1.ConditionTrue, reasonActive)
	if n := figures(t, metrics)[waiting]; n != 0 {
		t.Errorf("%v policies wait after the lists", n)
	}
}

// Once no node is unreachable, no list of Leases is needed, and none is missing.
func TestFailedLeaseListEndsWithOutage(t *testing.T) {
	t.Parallel()
	w := outage(t)
	w.fail["list leases"] = errNoAnswer
	w.pass(5 * time.Minute)
	w.wantActive(metav1.ConditionFalse, fencing.ReasonAPIReadFailed)
	w.node("a", v1.ConditionTrue)
	w.work() // before the next poll
	w.wantActive(metav1.ConditionTrue, reasonActive)
	if waiting := w.policyReports.Waiting(); len(waiting) > 0 {
		t.Errorf("%v waits", waiting)
	}
	w.pass(leasePoll)
	if w.view.failure() != nil {
		t.Error("the failure of the last outage is remembered")
	}
}
