package fencing

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

func givenUp(f *Facts) { f.Fence.GivenUp = true }

func TestRemediationConditions(t *testing.T) {
	failed := attempted(power, v1alpha1.ResultFailed)
	wrong := attempted(power, v1alpha1.ResultContradicted)
	for name, c := range map[string]struct {
		facts                 Facts
		processing, succeeded metav1.ConditionStatus
		reason                Reason
	}{
		"requested":             {facts(), "", "", ""},
		"without agents":        {facts(agents(), failed), "True", "Unknown", ReasonFencing},
		"an agent is at work":   {facts(attempted(power, "")), "True", "Unknown", ReasonFencing},
		"one of two has failed": {facts(agents(power, bmc), failed), "True", "Unknown", ReasonFencing},
		"all have failed":       {facts(failed), "False", "False", ReasonAllAgentsFailed},
		"the next round":        {facts(failed, attempted(power, "")), "True", "Unknown", ReasonFencing},
		"the word was wrong": {
			facts(attempted(confirmation, v1alpha1.ResultContradicted)), "True", "Unknown", ReasonFencing},
		"proven":                  {facts(proved(power)), "False", "True", ReasonFenced},
		"released":                {facts(proved(power), released), "False", "True", ReasonFenced},
		"proven and ended":        {facts(proved(power), ending), "False", "True", ReasonFenced},
		"proven and returned":     {facts(proved(power), ending, returnedAgo(0)), "False", "True", ReasonFenced},
		"contradicted":            {facts(wrong), "False", "False", ReasonAllAgentsFailed},
		"ended without a proof":   {facts(failed, ending, returnedAgo(0)), "False", "False", ReasonReturned},
		"given up":                {facts(failed, givenUp), "False", "False", ReasonHealthCheckGaveUp},
		"given up at once":        {facts(givenUp), "False", "False", ReasonHealthCheckGaveUp},
		"given up, and stopping":  {facts(attempted(power, ""), givenUp), "True", "Unknown", ReasonFencing},
		"given up, and proven":    {facts(proved(power), givenUp), "False", "True", ReasonFenced},
		"given up, and proven no": {facts(wrong, givenUp), "False", "False", ReasonHealthCheckGaveUp},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.facts.Fence.Status.DeepCopy()
			c.facts.Fence.remediated(s, now())
			for kind, want := range map[string]metav1.ConditionStatus{
				"Processing": c.processing, "Succeeded": c.succeeded,
			} {
				got := meta.FindStatusCondition(s.Conditions, kind)
				if want == "" && got == nil {
					continue
				}
				if got == nil || want == "" || got.Status != want || got.Reason != string(c.reason) ||
					got.ObservedGeneration != 3 || got.Message != c.reason.Sentence() || !got.LastTransitionTime.Time.Equal(now()) {
					t.Errorf("%s: %+v, want %s because %s", kind, got, want, c.reason)
				}
			}
		})
	}
}

func TestRemediationConditionsAreOfWrittenStatus(t *testing.T) {
	s := written(t, facts(down(), emptied))
	if c := meta.FindStatusCondition(s.Conditions, "Processing"); c == nil || c.Reason != string(ReasonFencing) {
		t.Errorf("with the first attempt: %+v", s.Conditions)
	}
}

// NodeHealthCheck uses the transition times of these conditions.
func TestRemediationConditionsKeepTheirTime(t *testing.T) {
	f := facts(agents(power, bmc), attempted(power, v1alpha1.ResultFailed))
	f.Fence.remediated(&f.Fence.Status, ago(time.Minute))
	attempted(bmc, "")(&f)
	f.Fence.Generation++
	f.Fence.remediated(&f.Fence.Status, now())
	for _, kind := range []string{"Processing", "Succeeded"} {
		c := meta.FindStatusCondition(f.Fence.Status.Conditions, kind)
		if !c.LastTransitionTime.Time.Equal(ago(time.Minute)) || c.ObservedGeneration != 4 {
			t.Errorf("%+v", c)
		}
	}
}

func TestGivenUpFenceStartsNoAgent(t *testing.T) {
	failed := attempted(power, v1alpha1.ResultFailed, endedAgo(time.Hour))
	said := func(f *Facts) { f.Fence.remediated(&f.Fence.Status, ago(0)) }
	began := attempted(confirmation, "", startedAgo(0))
	checkDecisions(t, map[string]decision{
		"it is said once": {facts(down(), emptied, failed, givenUp), WriteStatus, ReasonHealthCheckGaveUp, 0},
		"another reason was said before": {
			facts(down(), emptied, failed, said, givenUp), WriteStatus, ReasonHealthCheckGaveUp, 0},
		"before the first attempt": {facts(down(), emptied, givenUp), WriteStatus, ReasonHealthCheckGaveUp, 0},
		"it was said":              {facts(down(), emptied, failed, givenUp, said), Wait, ReasonHealthCheckGaveUp, 0},
		"the annotation is gone": {
			facts(down(), emptied, failed, givenUp, said, func(f *Facts) { f.Fence.GivenUp = false }), WriteStatus,
			ReasonFencing, 0},
		"a person confirms": {
			facts(down(), emptied, failed, givenUp, said, confirm("burned")), WriteStatus, ReasonFencing, 0},
		"a person has confirmed":      {facts(began, givenUp, confirm("burned")), ReadNode, ReasonFenced, 0},
		"the taint is removed before": {facts(down(tainted), failed, givenUp), RemoveTaint, ReasonContradicted, 0},
		"it is deleted": {
			facts(down(), failed, givenUp, said, terminating, allUndone), WriteStatus, ReasonEnded, 0},
		"the attempt was not started": {
			facts(attempted(power, ""), ran(RunAbsent), givenUp), WriteStatus, ReasonAgentCanceled, 0},
		"an agent works": {facts(attempted(power, ""), ran(Running), givenUp), StopRun, ReasonAgentCanceled, 0},
		"an agent is stopping": {
			facts(attempted(power, ""), ran(RunStopping), givenUp), Wait, ReasonAgentStopping, agentPoll},
		"an agent cannot be asked": {
			facts(attempted(power, ""), ran(RunUnknown), givenUp), Wait, ReasonAgentUnusable, agentPoll},
		"an agent has failed": {
			facts(attempted(power, ""), ran(RunFailed), givenUp), WriteStatus, ReasonAgentFailed, 0},
		"an agent has succeeded": {facts(attempted(power, ""), ran(RunSucceeded), givenUp), ReadNode, ReasonFenced, 0},
		"a person is asked": {
			facts(agents(byHandAgent), attempted(byHandAgent, ""), givenUp), WriteStatus, ReasonAgentCanceled, 0},
		"a person was asked, and confirms": {
			facts(agents(byHandAgent), attempted(byHandAgent, ""), givenUp, confirm("burned")), ReadNode, ReasonFenced, 0},
	})
}

// A proof remains valid: the node is released and returns as without the annotation.
func TestProvenFenceIsNotGivenUp(t *testing.T) {
	for name, f := range map[string]Facts{
		"not released": facts(proved(power), down()), "tainted": facts(proved(power), down(tainted)),
		"released": facts(proved(power), released, down(tainted)), "gone": facts(agents(bmc), proved(bmc), nodeGone, emptied),
		"back":    facts(proved(power), released, down(rebooted), renewedFor(0), emptied),
		"ended":   facts(proved(power), released, terminating),
		"volumes": facts(agents(storage), proved(storage), down(), emptied),
	} {
		before := Decide(f, now())
		givenUp(&f)
		if d := Decide(f, now()); d.Action != before.Action || d.Reason != before.Reason {
			t.Errorf("%s: %v because %s, and without the annotation %v because %s", name, d.Action, d.Reason, before.Action,
				before.Reason)
		}
	}
}

func TestRemovalOf(t *testing.T) {
	const far, snr = "fence-agents-remediation.medik8s.io", "self-node-remediation.medik8s.io"
	for _, c := range []struct {
		group, kind, strategy string
		want                  Removal
	}{
		{far, "FenceAgentsRemediation", "ResourceDeletion", RemovalDeletes},
		{far, "FenceAgentsRemediation", "", RemovalDeletes},
		{far, "FenceAgentsRemediation", "OutOfServiceTaint", RemovalTaints},
		{far, "FenceAgentsRemediation", "Automatic", RemovalUnknown},
		{snr, "SelfNodeRemediation", "ResourceDeletion", RemovalDeletes},
		{snr, "SelfNodeRemediation", "Automatic", RemovalTaints},
		{snr, "SelfNodeRemediation", "OutOfServiceTaint", RemovalTaints},
		{snr, "SelfNodeRemediation", "", RemovalUnknown},
		{"machine-deletion-remediation.medik8s.io", "MachineDeletionRemediation", "", RemovalUnknown},
		{"example.com", "FenceAgentsRemediation", "ResourceDeletion", RemovalUnknown},
		{far, "Other", "ResourceDeletion", RemovalUnknown},
	} {
		if got := RemovalOf(c.group, c.kind, c.strategy); got != c.want {
			t.Errorf("%s.%s %q: %d, want %d", c.kind, c.group, c.strategy, got, c.want)
		}
	}
}

// The message of a custom resource is gone with it, so a likely obstacle to its success is recorded beforehand.
func TestReasonOfRemediatorWithoutResultIsKept(t *testing.T) {
	deletes := func(r *RunFacts) { r.Removal = RemovalDeletes }
	taints := func(r *RunFacts) { r.Removal = RemovalTaints }
	sentence := ReasonAgentDeletesPods.Sentence()
	warned := func(a *v1alpha1.Attempt) { a.Message = sentence }
	work := all(agents(medik8s), attempted(medik8s, ""))
	noted := all(agents(medik8s), attempted(medik8s, "", warned))
	checkDecisions(t, map[string]decision{
		"it deletes pods":    {facts(work, ran(Running, deletes)), WriteStatus, ReasonAgentDeletesPods, agentPoll},
		"it was said":        {facts(noted, ran(Running, deletes)), Wait, ReasonAgentDeletesPods, agentPoll},
		"it taints the node": {facts(work, ran(Running, taints)), Wait, ReasonFencing, agentPoll},
		"how is not known":   {facts(work, ran(Running)), Wait, ReasonFencing, agentPoll},
		"it has succeeded":   {facts(work, ran(RunSucceeded, deletes)), ReadNode, ReasonFenced, 0},
		"abandoned":          {facts(work, givenUp, ran(Running, deletes)), StopRun, ReasonAgentCanceled, 0},
		"it was not started": {facts(work, ran(RunAbsent, deletes)), StartRun, ReasonFencing, 0},
		"its time is over, too": {
			facts(agents(medik8s), attempted(medik8s, "", startedAgo(5*time.Minute)), ran(Running, deletes)), StopRun,
			ReasonAgentTimedOut, 0},
	})
	s := written(t, facts(work, ran(Running, deletes)))
	if a := last(s); a.Message != sentence || a.EndedAt != nil || a.Result != "" || s.Phase != v1alpha1.PhaseFencing {
		t.Errorf("%+v", a)
	}
	for name, f := range map[string]Facts{
		"stopped": facts(agents(medik8s), attempted(medik8s, "", warned, startedAgo(5*time.Minute)),
			ran(RunAbsent, silence)),
		"canceled": facts(noted, terminating, ran(RunAbsent, silence)),
		"failed":   facts(noted, ran(RunFailed)),
	} {
		s := written(t, f)
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFenced)
		if !strings.HasSuffix(last(s).Message, sentence) || !strings.HasSuffix(c.Message, sentence) {
			t.Errorf("%s: %q, %q", name, last(s).Message, c.Message)
		}
	}
	proof := facts(noted, ran(RunSucceeded), down(), func(f *Facts) { f.NodeRead, f.LeaseRead = read(3), read(4) })
	if a := last(written(t, proof)); a.Message != "words" {
		t.Errorf("it has succeeded, and says %q", a.Message)
	}
}

// A reboot releases the pods that were terminating before it. Without a further agent, other held pods would stay for
// ever if the node does not return.
func TestNextAgentAfterRebootForHeldPods(t *testing.T) {
	in := all(agents(medik8s, power), proved(medik8s), provenAgo(returnPatience), down(), heldThere("pod", "later"))
	open := all(in, attempted(power, ""))
	waits := func(f Facts) decision { return decision{f, Wait, ReasonFenced, nodePoll} }
	checkDecisions(t, map[string]decision{
		"a pod is held": {facts(in), WriteStatus, ReasonFencing, 0},
		"not listed": {
			facts(in, func(f *Facts) { f.Remaining = RemainingFacts{} }), ListRemaining, ReasonFenced, 0},
		"it was listed before": {
			facts(in, listedBefore), ListRemaining, ReasonFenced, 0},
		"the proof releases all": waits(facts(in, heldThere("pod"))),
		"nothing is held":        waits(facts(in, emptied)),
		"a pod is not held":      {facts(in, unheldThere), WriteStatus, ReasonFencing, 0},
		"a pod is not held, and another reboot releases none": waits(facts(in, unheldThere, agents(medik8s))),
		"a pod is not held, and the node may return": waits(facts(in, unheldThere,
			provenAgo(returnPatience-time.Second))),
		"the node may return":        waits(facts(in, provenAgo(returnPatience-time.Second))),
		"the node is Ready":          waits(facts(in, down(ready))),
		"it is of the control plane": waits(facts(in, down(controlPlane))),
		"it is of the control plane, which is allowed": {facts(in, down(controlPlane), func(f *Facts) {
			f.Fence.Spec.AllowControlPlane = true
		}), WriteStatus, ReasonFencing, 0},
		"it is tainted":              waits(facts(in, down(tainted))),
		"it is given up":             waits(facts(in, givenUp)),
		"the next one is of volumes": waits(facts(in, agents(medik8s, storage))),
		"all are tried again later": waits(facts(in, agents(medik8s), provenAgo(returnPatience),
			attempted(medik8s, v1alpha1.ResultFailed))),
		"all are tried again": {facts(in, agents(medik8s)), WriteStatus, ReasonFencing, 0},
		"the node may return, and a person confirms": {
			facts(in, provenAgo(0), confirm("burned")), WriteStatus, ReasonFencing, 0},
		"a person confirms, and no pod is left": {facts(in, emptied, provenAgo(0), confirm("burned")), WriteStatus,
			ReasonFencing, 0},
		"a person confirms, and the proof releases all": {facts(in, heldThere("pod"), confirm("burned")), WriteStatus,
			ReasonFencing, 0},
		"a person confirms, and the node is Ready":       waits(facts(in, emptied, confirm("burned"), down(ready))),
		"the confirmation is a copy, and no pod is left": waits(facts(in, emptied, confirm("burned"), copied)),
		"a confirmation that the node has contradicted, and no pod is left": waits(facts(in, emptied, confirm("burned"),
			attempted(confirmation, v1alpha1.ResultContradicted, func(a *v1alpha1.Attempt) { a.Message = "burned" }))),
		"the next one failed, too": {facts(in, attempted(power, v1alpha1.ResultFailed, endedAgo(time.Hour))), WriteStatus,
			ReasonFencing, 0},
		"the next one works":       {facts(open, ran(Running)), Wait, ReasonFencing, agentPoll},
		"the next one is to start": {facts(open, ran(RunAbsent), down()), StartRun, ReasonFencing, 0},
		"the node came back meanwhile": {
			facts(open, ran(RunAbsent), down(ready)), WriteStatus, ReasonAgentCanceled, 0},
		"ended by request": {facts(open, ran(RunAbsent), unfence(v1alpha1.UnfenceNow)), WriteStatus, ReasonAgentCanceled,
			0},
	})
	for name, f := range map[string]Facts{"begun": facts(in), "failed": facts(open, ran(RunFailed))} {
		s := written(t, f)
		if !is(s, v1alpha1.ConditionFenced) || s.Proof == nil || s.Proof.Agent != medik8s || s.Phase != v1alpha1.PhaseFenced {
			t.Errorf("%s: the proof does not stay: %+v", name, s)
		}
		if a := last(s); a.Agent != power || a.Number != 2 {
			t.Errorf("%s: the last attempt is %+v", name, a)
		}
	}
	s := written(t, facts(open, ran(RunSucceeded), func(f *Facts) { f.NodeRead, f.LeaseRead = read(3), read(4) }))
	if !is(s, v1alpha1.ConditionFenced) || s.Proof.Agent != power || s.Proof.Covers != v1alpha1.CoversUntilUnfenced {
		t.Errorf("the proof is not replaced: %+v", s.Proof)
	}
}
