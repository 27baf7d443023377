package fencing

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// The status shows a wait for a person, with each condition as it was, and is written once.
func TestStatusShowsWaitForPerson(t *testing.T) {
	in := proved(power)
	undone := all(in, unfence(v1alpha1.UnfenceWhenReleased), released, ending, allUndone, down(tainted))
	failed := all(in, unfence(v1alpha1.UnfenceNow), ending, tried(1, 0), ran(RunFailed, undo,
		func(r *RunFacts) { r.EndedAt, r.Message = now(), "no route" }))
	const fenced, returned = v1alpha1.ConditionFenced, v1alpha1.ConditionReturned
	for name, c := range map[string]struct {
		in        func(*Facts)
		condition string
		status    metav1.ConditionStatus
		wait, why Reason
		phase     v1alpha1.Phase
	}{
		"no Node": {nodeGone, fenced, metav1.ConditionFalse, ReasonNodeNotFound, ReasonNodeNotFound,
			v1alpha1.PhaseRequested},
		"the control plane": {down(controlPlane), fenced, metav1.ConditionFalse, ReasonControlPlane, ReasonControlPlane,
			v1alpha1.PhaseRequested},
		"a confirmation": {all(agents(byHandAgent), attempted(byHandAgent, ""), down()), fenced, metav1.ConditionFalse,
			ReasonWaitsForConfirmation, ReasonWaitsForConfirmation, v1alpha1.PhaseFencing},
		"a confirmation after a reboot": {all(agents(medik8s, byHandAgent), proved(medik8s), attempted(byHandAgent, ""),
			down()), fenced, metav1.ConditionTrue, ReasonWaitsForConfirmation, ReasonWaitsForConfirmation,
			v1alpha1.PhaseFenced},
		"another machine": {all(in, down(replaced), renewedFor(0)), fenced, metav1.ConditionTrue, ReasonMachineReplaced,
			ReasonMachineReplaced, v1alpha1.PhaseFenced},
		"another machine, without the finalizer before": {all(in, forsook, down(replaced), renewedFor(0)), fenced,
			metav1.ConditionUnknown, ReasonMachineReplaced, ReasonMachineReplaced, v1alpha1.PhaseFenced},
		"a pod": {all(in, down(rebooted), renewedFor(0), heldThere("pod")), fenced, metav1.ConditionTrue,
			ReasonRemainsOnNode, ReasonRemainsOnNode, v1alpha1.PhaseFenced},
		"a reboot": {all(agents(storage), proved(storage), down(ready, shunned), renewedFor(0)), fenced,
			metav1.ConditionTrue, ReasonNeedsReboot, ReasonNeedsReboot, v1alpha1.PhaseFenced},
		"a reboot no more": {all(in, down(ready), saysWait(ReasonMachineReplaced)), fenced, metav1.ConditionTrue,
			ReasonNodeStillReady, ReasonFenced, v1alpha1.PhaseFenced},
		"a reboot no more, because the Node is deleted": {all(in, nodeGone, heldThere("pod"), saysWait(ReasonNeedsReboot)),
			fenced, metav1.ConditionTrue, ReasonNodeDeleted, ReasonFenced, v1alpha1.PhaseFenced},
		"a failed undo no more, but the next": {all(in, unfence(v1alpha1.UnfenceNow), ending, tried(1, 0), ran(Running, undo),
			func(f *Facts) {
				f.Fence.Status.Conditions = append(f.Fence.Status.Conditions, metav1.Condition{
					Type: returned, Status: metav1.ConditionFalse, Reason: string(ReasonUnfenceFailed)})
			}), returned, metav1.ConditionFalse, ReasonUnfencing, ReasonUnfencing, v1alpha1.PhaseUnfencing},
		"a confirmation no more after a reboot, but the next agent": {all(agents(medik8s, power), proved(medik8s),
			attempted(power, ""), ran(Running), down(), saysWait(ReasonWaitsForConfirmation)), fenced, metav1.ConditionTrue,
			ReasonFencing, ReasonFenced, v1alpha1.PhaseFenced},
		"a Node no more": {all(attempted(power, v1alpha1.ResultFailed), down(), condition(fenced, false),
			saysWait(ReasonNodeNotFound)), fenced, metav1.ConditionFalse, ReasonAllAgentsFailed, ReasonAllAgentsFailed,
			v1alpha1.PhaseFailed},
		"the return": {undone, returned, metav1.ConditionFalse, ReasonAwaitsReturn, ReasonAwaitsReturn,
			v1alpha1.PhaseUnfencing},
		"a node that runs": {all(undone, renewedFor(0)), returned, metav1.ConditionFalse, ReasonNodeRuns, ReasonNodeRuns,
			v1alpha1.PhaseUnfencing},
		"an undo": {failed, returned, metav1.ConditionFalse, ReasonUnfenceFailed, ReasonUnfenceFailed,
			v1alpha1.PhaseUnfencing},
		"an undo without a proof": {all(attempted(power, v1alpha1.ResultTimedOut), unfence(v1alpha1.UnfenceNow), tried(1, 0),
			ran(RunFailed, undo, func(r *RunFacts) { r.EndedAt = now() })), returned, metav1.ConditionFalse,
			ReasonUnfenceFailed, ReasonUnfenceFailed, v1alpha1.PhaseFailed},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(c.in)
			if d := decide(f, now()); d.Action != Wait || d.Reason != c.wait {
				t.Fatalf("%v because %s", d.Action, d.Reason)
			}
			s := written(t, f)
			is := meta.FindStatusCondition(s.Conditions, c.condition)
			if is == nil || is.Status != c.status || is.Reason != string(c.why) || is.Message != c.why.Sentence() ||
				is.ObservedGeneration != 3 || s.Phase != c.phase {
				t.Errorf("%+v, phase %s", is, s.Phase)
			}
			if f.Fence.Status = *s; Decide(f, now()).Action != Wait {
				t.Errorf("it is written again: %+v", Decide(f, now()))
			}
		})
	}
}

// The condition Released is about the taint, and not about an earlier one.
func TestStatusShowsLossOfTaint(t *testing.T) {
	in := all(proved(power), released)
	for name, c := range map[string]struct {
		f     Facts
		why   Reason
		phase v1alpha1.Phase
	}{
		"a pod remains after the boot": {facts(in, down(rebooted), renewedFor(0), heldThere("pod")), ReasonRemainsOnNode,
			v1alpha1.PhaseFenced},
		"VolumeAttachments are listed": {facts(in, down(rebooted), renewedFor(0), emptied, unlisted),
			ReasonAwaitsVolumeList, v1alpha1.PhaseFenced},
		"another machine has booted": {facts(in, down(replaced), renewedFor(0)), ReasonMachineReplaced,
			v1alpha1.PhaseFenced},
		"it is removed by hand from a node that is Ready": {facts(in, down(ready)), ReasonNodeStillReady,
			v1alpha1.PhaseFenced},
		"the Node is deleted": {facts(in, nodeGone, heldThere("pod")), ReasonNodeDeleted, v1alpha1.PhaseFenced},
	} {
		s := written(t, c.f)
		is := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReleased)
		if is.Status != metav1.ConditionFalse || is.Reason != string(c.why) || s.Phase != c.phase {
			t.Errorf("%s: %+v, phase %s", name, is, s.Phase)
		}
		if c.f.Fence.Status = *s; Decide(c.f, now()).Action != Wait {
			t.Errorf("%s: it is written again", name)
		}
	}
}

// The first write of the end is the last for as long as an undo fails.
func TestEndOfFenceShowsLossOfTaint(t *testing.T) {
	in := all(proved(power), released)
	for name, c := range map[string]struct {
		f        Facts
		released bool
	}{
		"the node has booted and lost it":       {facts(in, down(rebooted), renewedFor(0), emptied), false},
		"an unfence, while the node is tainted": {facts(in, unfence(v1alpha1.UnfenceNow), down(tainted)), true},
	} {
		s := written(t, c.f)
		if is(s, v1alpha1.ConditionFenced) || is(s, v1alpha1.ConditionReleased) != c.released {
			t.Errorf("%s: %+v", name, s.Conditions)
		}
	}
}

func TestStatusIsNotWrittenForShortWait(t *testing.T) {
	in := proved(power)
	for name, f := range map[string]Facts{
		"a list of VolumeAttachments": facts(in, saysWait(ReasonRemainsOnNode), down(rebooted), renewedFor(0), emptied,
			unlisted),
		"a node that still renews its Lease": facts(in, down(), renewedFor(0)),
		"a pod of a deleted Node":            facts(in, nodeGone, heldThere("pod")),
		"a node that is Ready":               facts(in, down(ready)),
		"all agents failed": facts(attempted(power, v1alpha1.ResultFailed), down(),
			condition(v1alpha1.ConditionFenced, false)),
		"a taint": facts(in, released, down(tainted)),
		"an undo, while the Node is not read": facts(in, condition(v1alpha1.ConditionReleased, true), ending,
			unfence(v1alpha1.UnfenceNow), tried(1, 0), ran(Running, undo)),
		"a dry run":            facts(nodeGone, func(f *Facts) { f.Rules.DryRun = true }),
		"a fence that is over": facts(returnedAgo(0), func(f *Facts) { f.Fence.Status.ObservedGeneration = 2 }),
	} {
		if d := Decide(f, now()); d.Action != Wait {
			t.Errorf("%s: %v because %s", name, d.Action, d.Reason)
		}
	}
}

// A wait shows that another generation of the spec was seen.
func TestStatusShowsSeenGeneration(t *testing.T) {
	f := facts(proved(power), released, down(tainted), func(f *Facts) { f.Fence.Status.ObservedGeneration = 2 })
	s := written(t, f)
	if s.ObservedGeneration != 3 || s.Conditions[0].ObservedGeneration != 3 || !is(s, v1alpha1.ConditionReleased) {
		t.Errorf("%+v", s)
	}
	if f.Fence.Status = *s; Decide(f, now()).Action != Wait {
		t.Error("it is written again")
	}
}

func TestNodeHealthCheckSeesWhyNoAgentIsTried(t *testing.T) {
	s := written(t, facts(nodeGone))
	for kind, want := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionProcessing: metav1.ConditionFalse, v1alpha1.ConditionSucceeded: metav1.ConditionUnknown} {
		if c := meta.FindStatusCondition(s.Conditions, kind); c == nil || c.Status != want ||
			c.Reason != string(ReasonNodeNotFound) {
			t.Errorf("%s is %+v", kind, c)
		}
	}
}

// The message of an undo that fails is in the status at its first failure, and at each later try.
func TestStatusShowsMessageOfFailedUndo(t *testing.T) {
	words := strings.Repeat("no route. ", 1000)
	fails := func(at time.Duration) func(*Facts) {
		return all(proved(power), unfence(v1alpha1.UnfenceNow), ending, tried(1, at), ran(RunFailed, undo,
			func(r *RunFacts) { r.EndedAt, r.Message = ago(at), words }))
	}
	for name, f := range map[string]Facts{"it has failed": facts(fails(0)), "it is tried again": facts(fails(time.Hour))} {
		got := written(t, f).Attempts[0].Message
		if !strings.HasPrefix(got, "no route. no route. ") || len(got) > maxMessage {
			t.Errorf("%s: %q", name, got)
		}
	}
}
