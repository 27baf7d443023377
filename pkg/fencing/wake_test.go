package fencing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// recording records the objects that events enqueue, and the forgotten ones.
type recording struct{ all []string }

// wake returns the functions that record.
func (r *recording) wake() wake {
	add := func(kind string) func(string) { return func(name string) { r.all = append(r.all, kind+" "+name) } }
	forget := func(uid types.UID) { r.all = append(r.all, "forget "+string(uid)) }
	return wake{fence: add("fence"), policy: add("policy"), forgetFence: forget, forgetPolicy: forget,
		reached: add("reached")}
}

func TestWakingChanges(t *testing.T) {
	t.Parallel()
	none, one, two := fencing.Fence{}, fencing.Fence{Name: "a", UID: "one"}, fencing.Fence{Name: "a", UID: "two"}
	p, q := policyNamed("p", "one"), policyNamed("p", "two")
	ready, away := &objects.LabeledNode{Name: "a"}, &objects.LabeledNode{Name: "a", Unreachable: true}
	other, tainted := &objects.LabeledNode{Name: "z"}, &objects.LabeledNode{Name: "z", Tainted: true}
	for sentence, c := range map[string]struct {
		happens func(o *observer)
		want    string
	}{
		"a new fence":      {func(o *observer) { o.fenceChanged(none, one) }, "fence a, policy p"},
		"a fence changes":  {func(o *observer) { o.fenceChanged(one, one) }, "fence a, policy p"},
		"another fence":    {func(o *observer) { o.fenceChanged(one, two) }, "fence a, forget one, policy p"},
		"a fence is gone":  {func(o *observer) { o.fenceChanged(one, none) }, "fence a, forget one, policy p"},
		"a new policy":     {func(o *observer) { o.policyChanged(nil, p) }, "policy p"},
		"a policy changes": {func(o *observer) { o.policyChanged(p, p) }, "policy p"},
		"another policy":   {func(o *observer) { o.policyChanged(p, q) }, "forget one, policy p"},
		"a policy is gone": {func(o *observer) { o.policyChanged(p, nil) }, "forget one"},
		"a new node":       {func(o *observer) { o.nodeChanged(nil, ready) }, "fence a, reached a"},
		"an unknown node":  {func(o *observer) { o.nodeChanged(nil, other) }, "reached z"},
		"a tainted node":   {func(o *observer) { o.nodeChanged(nil, tainted) }, "fence z, reached z"},
		"a removed taint":  {func(o *observer) { o.nodeChanged(tainted, other) }, "fence z, reached z"},
		"a lost node":      {func(o *observer) { o.nodeChanged(ready, away) }, "fence a, policy p"},
		"a node is back":   {func(o *observer) { o.nodeChanged(away, ready) }, "fence a, policy p, reached a"},
		"a node is the same": {func(o *observer) {
			o.nodeChanged(away, &objects.LabeledNode{Name: "a", Unreachable: true})
		}, ""},
		"a lost node is gone": {func(o *observer) { o.nodeChanged(away, nil) }, "fence a, policy p, reached a"},
	} {
		w := newWorld(t, Config{})
		w.ask("a")
		w.policy("p")
		w.sync()
		woken := &recording{}
		w.observer.wake = woken.wake()
		c.happens(w.observer)
		slices.Sort(woken.all)
		if got := strings.Join(woken.all, ", "); got != c.want {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
	}
}

func policyNamed(name string, uid types.UID) *v1alpha1.FencePolicy {
	return &v1alpha1.FencePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
}

// The replica that begins to lead works on these objects.
func TestInitialWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	for _, name := range []string{"a", "b", "c"} {
		w.node(name, v1.ConditionTrue, func(o *v1.Node) {
			if name != "c" {
				o.Spec.Taints = []v1.Taint{{Key: objects.VolumesFencedTaint}}
			}
		})
	}
	w.ask("a")
	w.policy("p")
	w.sync()
	fences, policies := w.observer.first()
	if !slices.Equal(fences, []string{"a", "b"}) || !slices.Equal(policies, []string{"p"}) {
		t.Errorf("fences %q, policies %q", fences, policies)
	}
	for name, want := range map[string]bool{"a": true, "b": true, "c": false, "z": false} {
		if f, found := w.observer.observe(name); found != want || f.Fence.Name != name {
			t.Errorf("%s: %t, %+v", name, found, f)
		}
	}
}

// A fence of a policy begins with the outage of its node.
func TestBeginOfFence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.node("a", v1.ConditionUnknown)
	w.node("up", v1.ConditionTrue)
	lost := w.clock.Now()
	created := lost.Add(time.Minute)
	w.clock.Step(2 * time.Minute)
	w.node("later", v1.ConditionUnknown)
	w.sync()
	of := func(name, policy string) fencing.Fence {
		return fencing.Fence{Name: name, Created: created, Spec: v1alpha1.NodeFenceSpec{PolicyName: policy}}
	}
	for sentence, c := range map[string]struct {
		fence fencing.Fence
		want  time.Time
	}{
		"of a policy": {of("a", "p"), lost}, "by hand": {of("a", ""), created}, "on a node": {of("up", "p"), created},
		"and lost since": {of("later", "p"), created}, "gone": {of("gone", "p"), created},
	} {
		if got := w.observer.began(c.fence); !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", sentence, got, c.want)
		}
	}
}

// A fence that ends in the course of a session leaves no record of it.
func TestLateRecordOfFenceIsDropped(t *testing.T) {
	t.Parallel()
	for sentence, end := range map[string]func(w *world){
		"gone":     func(w *world) { delete(w.fences, "a") },
		"replaced": func(w *world) { w.ask("a", agent("off")) },
	} {
		w := requested(t, Config{})
		w.again(2)
		w.fail["start off"] = errNoAnswer
		ended := false
		w.hook = func(call string) {
			if ended = ended || call == "start off"; call == "start off" {
				end(w)
				w.sync()
			}
		}
		w.reconcile(t.Context(), "a")
		if waiting := w.reports.Waiting(); !ended || len(waiting) > 0 || len(w.observer.tracker.Fences) > 0 {
			t.Errorf("%s: %v waits, %v is remembered", sentence, waiting, w.observer.tracker.Fences)
		}
	}
}

// The replica ends, or loses leadership.
func TestCanceledWorkMakesNoReport(t *testing.T) {
	t.Parallel()
	w := requested(t, Config{})
	w.policy("p")
	w.sync()
	ctx, cancel := context.WithCancel(t.Context())
	w.hook = func(string) { cancel() }
	w.fail["get fence"], w.fail["list leases"] = context.Canceled, context.Canceled
	if got := w.reconcile(ctx, "a"); got != controller.Done() || len(w.reports.Waiting()) > 0 {
		t.Errorf("%+v, %v waits", got, w.reports.Waiting())
	}
	if w.pollOnce(ctx); len(w.policyReports.Waiting()) > 0 {
		t.Errorf("%v waits", w.policyReports.Waiting())
	}
}

// The report of a wait names the attempt.
func TestDetail(t *testing.T) {
	t.Parallel()
	var s fencing.Session
	s.Facts.Fence.Status.Attempts = []v1alpha1.Attempt{{Number: 7, Agent: "off", Message: "words"}}
	s.Facts.Run.Message = "of the undo"
	const attempt = `Attempt 7, agent "off".`
	for reason, want := range map[fencing.Reason]string{
		fencing.ReasonFencing: attempt, fencing.ReasonAgentDeletesPods: attempt, fencing.ReasonAgentStopping: attempt,
		fencing.ReasonWaitsForConfirmation: attempt, fencing.ReasonAgentUnusable: attempt,
		fencing.ReasonUnfenceFailed: "of the undo", fencing.ReasonFenced: attempt + " words",
		fencing.ReasonAgentFailed: attempt + " words", fencing.ReasonAgentTimedOut: attempt + " words",
		fencing.ReasonAgentCanceled: attempt + " words", fencing.ReasonContradicted: attempt + " words",
		fencing.ReasonRequested: "",
	} {
		if got := detail(&s, reason); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	if o := object(fencing.Fence{Name: "a", UID: "uid"}); o.UID != "uid" || o.Name != "a" {
		t.Errorf("reported on %+v", o)
	}
	if o := policyObject(policyNamed("p", "uid")); o.UID != "uid" || o.Name != "p" {
		t.Errorf("reported on %+v", o)
	}
}

// An agent has a time limit, and a node that has booted waits for the end of its fence.
func TestPolledFencesAreRetriedSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	for phase, soon := range map[v1alpha1.Phase]bool{
		v1alpha1.PhaseRequested: false, v1alpha1.PhaseFencing: true, v1alpha1.PhaseFenced: true,
		v1alpha1.PhaseReleased: true, v1alpha1.PhaseUnfencing: true, v1alpha1.PhaseReturned: false,
		v1alpha1.PhaseFailed: false,
	} {
		var s fencing.Session
		s.End, s.Facts.Fence.Status.Phase = session.CallFailed, phase
		polled := controller.Retries(w.cfg.Settings)
		polled.First, polled.Max = min(polled.First, polledRetryMax), min(polled.Max, polledRetryMax)
		if got := w.requeue(&s); got == controller.Retries(w.cfg.Settings).Retry() == soon || got == polled.Retry() != soon {
			t.Errorf("%s: %+v", phase, got)
		}
	}
}

func TestCallReads(t *testing.T) {
	t.Parallel()
	w := requested(t, Config{})
	w.remain = fencing.RemainingFacts{Held: []fencing.HeldPod{{UID: "pod"}}}
	ask := fencing.Ask{Node: "a", Action: fencing.ListRemaining}
	if reply, err := w.Controller.call(t.Context(), ask); err != nil || len(reply.Remaining.Held) != 1 {
		t.Errorf("%+v, %v", reply, err)
	}
	w.fail["list remaining"] = errNoAnswer
	if reply, err := w.Controller.call(t.Context(), ask); !errors.Is(err, errNoAnswer) ||
		reply.Outcome != session.Unanswered {
		t.Errorf("%+v, %v", reply, err)
	}
}
