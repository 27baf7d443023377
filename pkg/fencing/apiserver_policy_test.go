//go:build controlplane && unix

package fencing

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/apiserver"
)

// pollClock is a fake clock that reports when the controller waits for the next list of Leases.
type pollClock struct {
	*testclock.FakeClock
	armed chan struct{}
}

func (c pollClock) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	if d == leasePoll {
		c.armed <- struct{}{}
	}
	return timer
}

// outageBench is a node with a waiting pod, a running node, and a controller with a clock that the test sets.
type outageBench struct {
	*bench
	runs   *bench
	c      *Controller
	clock  pollClock
	canary int
	// cutOff stops the Lease renewals of the running node.
	cutOff bool
}

func newOutageBench(t *testing.T, name string) *outageBench {
	t.Helper()
	o := &outageBench{bench: newBench(t, name), runs: newBench(t, name+"-runs"),
		clock: pollClock{testclock.NewFakeClock(time.Now()), make(chan struct{}, 1)}}
	o.report(v1.ConditionTrue, "boot-1")
	o.runs.report(v1.ConditionTrue, "boot-1")
	o.CreatePod("waits", "data", func(pod *v1.Pod) { pod.Spec.NodeName = name })
	o.policy(name)
	o.policy(name + "-canary")
	var err error
	o.c, err = New(apiserver.Admin(), Config{Settings: controllers.Settings{Clock: o.clock}})
	o.Must(err)
	o.Run(o.c)
	return o
}

// policy creates a FencePolicy with the shortest possible patience, for the nodes with its label.
func (o *outageBench) policy(name string) {
	o.Helper()
	_, err := o.clients.own.Policies.Create(o.Context(), &v1alpha1.FencePolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: policyKind},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.FencePolicySpec{
			NodeSelector:     metav1.LabelSelector{MatchLabels: map[string]string{"test": name}},
			UnreachableAfter: metav1.Duration{Duration: fencing.SilentAfter}, Agents: []v1alpha1.Agent{manual()},
			MaxFences: intstr.FromInt32(100), MaxFencesPerZone: 100, HaltAbove: 100, WaitForTolerations: ptr.To(false),
		},
	}, metav1.CreateOptions{})
	o.Must(err)
	o.Cleanup(func() { o.Must(o.clients.own.Policies.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	if name == o.node {
		_, err = o.clients.Core.Nodes().Patch(o.Context(), o.node, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{"test":%q}}}`, name), metav1.PatchOptions{})
		o.Must(err)
	}
}

// turn makes the node unreachable or brings it back, and returns when the controller has observed that.
func (o *outageBench) turn(unreachable bool) {
	o.Helper()
	if unreachable {
		o.report(v1.ConditionUnknown, "boot-1")
	} else {
		o.report(v1.ConditionTrue, "boot-1")
	}
	o.Until("the controller sees it", func() bool {
		return slices.Contains(o.c.observer.unreachable(), o.node) == unreachable
	})
}

// pass steps the clock to the next list of Leases, which shows a renewal of the running node unless it is cut off. It
// returns when the controller has worked on all policies since then: a canary policy is changed after the others were
// enqueued, and worked on after them.
func (o *outageBench) pass() {
	o.Helper()
	<-o.clock.armed
	if !o.cutOff {
		o.runs.renew()
	}
	o.clock.Step(leasePoll)
	<-o.clock.armed // the Leases are listed
	o.clock.armed <- struct{}{}
	if _, known := o.c.view.clear(o.clock.Now()); !known {
		return // no policy is worked on before a later list
	}
	o.canary++
	name := o.node + "-canary"
	changed, err := o.clients.own.Policies.Patch(o.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"maxFencesPerZone":%d}}`, o.canary), metav1.PatchOptions{})
	o.Must(err)
	o.Until("the policies were worked on", func() bool {
		now, err := o.clients.own.Policies.Get(o.Context(), name, metav1.GetOptions{})
		o.Must(err)
		return now.Status.ObservedGeneration == changed.Generation
	})
}

// silent returns how long the controller has seen the node silent.
func (o *outageBench) silent() time.Duration {
	since, _ := o.c.view.since(o.node)
	if since.IsZero() {
		return 0
	}
	return o.clock.Since(since)
}

// TestSilenceMustLastBeforeFence makes a node unreachable again and again. Each outage is shorter than
// the patience of its policy, and their sum is much longer. The last outage does not end.
func TestSilenceMustLastBeforeFence(t *testing.T) {
	o := newOutageBench(t, "flaps")
	for range 4 {
		o.turn(true)
		for waited := leasePoll; waited < fencing.SilentAfter; waited += leasePoll {
			o.pass()
		}
		if o.fence().UID != "" {
			t.Fatal("WRONG FENCE: a node that was never silent for as long as its policy waits")
		}
		o.turn(false)
		o.renew()
	}
	o.turn(true)
	for o.silent() < fencing.SilentAfter {
		if o.fence().UID != "" {
			t.Fatalf("the node was fenced after %v, and its policy waits %v", o.silent(), fencing.SilentAfter)
		}
		o.pass()
	}
	o.Until("the node is fenced", func() bool { return o.fence().Spec.PolicyName == o.node })
}

// TestNoFenceWhileNoNodeRenews silences all nodes, as if the control plane were cut off.
func TestNoFenceWhileNoNodeRenews(t *testing.T) {
	o := newOutageBench(t, "no-view")
	o.turn(true)
	o.cutOff = true
	for o.silent() < 2*fencing.SilentAfter {
		o.pass()
	}
	if o.fence().UID != "" {
		t.Fatal("WRONG FENCE: the control plane is more likely to be cut off than each of the nodes")
	}
	o.cutOff = false
	o.Until("the node is fenced when the other one is back", func() bool {
		o.pass()
		return o.fence().Spec.PolicyName == o.node
	})
}

// TestTaintOfFencedVolumes plays a node that is fenced from volumes, and comes back without and with a boot.
func TestTaintOfFencedVolumes(t *testing.T) {
	b := newBench(t, "volumes")
	b.ask(storage())
	f := b.fence()
	at := metav1.Now()
	f.Finalizers = []string{fencing.Finalizer}
	f, err := b.clients.own.Fences.Update(t.Context(), f, metav1.UpdateOptions{})
	b.Must(err)
	f.Status = v1alpha1.NodeFenceStatus{Phase: v1alpha1.PhaseFenced,
		Attempts: []v1alpha1.Attempt{{Number: 1, Agent: "net", StartedAt: at, EndedAt: &at, Result: v1alpha1.ResultProven}},
		Proof: &v1alpha1.Proof{Attempt: 1, Agent: "net", Covers: v1alpha1.CoversVolumes, ProvenAt: at, BootID: "boot-1",
			Volumes: []v1alpha1.CoveredVolumes{{Agent: "net", Driver: "driver", Volumes: v1alpha1.VolumesAll}}},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue, Reason: "Fenced",
			LastTransitionTime: at}}}
	_, err = b.clients.own.Fences.UpdateStatus(t.Context(), f, metav1.UpdateOptions{})
	b.Must(err)
	b.clock = testclock.NewFakeClock(time.Now()) // a fenced node is read each 10 seconds
	recorder := record.NewFakeRecorder(100)
	b.start(Config{Settings: controllers.Settings{Events: recorder, Clock: b.clock}})
	want := v1.Taint{Key: "csi-reclaimer.io/volumes-fenced", Effect: v1.TaintEffectNoSchedule}
	shunned := func() bool { return slices.Equal(b.taints(), []v1.Taint{want}) }
	b.Until("new pods stay away", shunned)
	b.report(v1.ConditionTrue, "boot-1")
	b.renew()
	b.wantEvent(recorder, "NeedsReboot")
	_, err = b.clients.Core.Nodes().Patch(t.Context(), b.node, types.MergePatchType, []byte(`{"spec":{"taints":null}}`),
		metav1.PatchOptions{})
	b.Must(err)
	b.Until("new pods stay away again", shunned)
	var marked []string // by --release-finalizers
	b.Must(b.eachTainted(t.Context(), func(name string, _ objects.Node) { marked = append(marked, name) }))
	if !slices.Contains(marked, b.node) {
		t.Errorf("the nodes with a taint are %q", marked)
	}
	b.report(v1.ConditionTrue, "boot-2")
	b.Until("new pods are welcome", func() bool { return len(b.taints()) == 0 })
	if b.is(v1alpha1.ConditionReturned) {
		t.Error("the fence has ended, although no agent could undo it")
	}
}
