package fencing

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// written returns the status that the decision on these facts writes.
func written(t *testing.T, f Facts) *v1alpha1.NodeFenceStatus {
	t.Helper()
	before := f.Fence.Status.DeepCopy()
	d := Decide(f, now())
	if d.Action != WriteStatus {
		t.Fatalf("%v because %s", d.Action, d.Reason)
	}
	if !reflect.DeepEqual(before, &f.Fence.Status) {
		t.Error("the facts were changed")
	}
	return d.Status
}

func last(s *v1alpha1.NodeFenceStatus) v1alpha1.Attempt { return s.Attempts[len(s.Attempts)-1] }

func is(s *v1alpha1.NodeFenceStatus, kind string) bool {
	return meta.IsStatusConditionTrue(s.Conditions, kind)
}

func TestAttemptRecordsNodeState(t *testing.T) {
	f := facts(agents(power, bmc), down(func(n *objects.Node) { n.BootID = "boot1" }), emptied,
		attempted(power, v1alpha1.ResultFailed))
	f.Remaining.Held = []HeldPod{{UID: "a"}, {UID: "b"}}
	s := written(t, f)
	a := last(s)
	if a.Number != 2 || a.Agent != bmc || a.BootID != "boot1" || !a.StartedAt.Time.Equal(now()) || a.EndedAt != nil ||
		!slices.Equal(a.TerminatingPods, []types.UID{"a", "b"}) || s.Phase != v1alpha1.PhaseFencing ||
		is(s, v1alpha1.ConditionFenced) {
		t.Errorf("%+v, phase %s", a, s.Phase)
	}
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFenced)
	if c == nil || c.Reason != string(ReasonFencing) {
		t.Errorf("%+v", s.Conditions)
	}
	f.Fence.Status.Attempts, f.Remaining.Held = nil, append(make([]HeldPod, maxPods+1), HeldPod{"other", "c"})
	a = last(written(t, f))
	if a.Number != 1 || a.Agent != power || len(a.TerminatingPods) != maxPods {
		t.Errorf("attempt %d of %s with %d pods", a.Number, a.Agent, len(a.TerminatingPods))
	}
	if !slices.Contains(a.TerminatingPods, "c") {
		t.Error("the pods of one namespace have all places")
	}
}

// The pause between two rounds doubles up to its bound, and each agent has its turn.
func TestAgentOrderAndPauses(t *testing.T) {
	f := facts(agents(power, bmc), down(), emptied)
	at := metav1.NewTime(ago(0))
	var order []string
	var pauses []time.Duration
	for range 14 {
		agent, pause := f.Fence.next(now())
		order, pauses = append(order, agent), append(pauses, pause)
		f.begin(&f.Fence.Status, agent, now())
		conclude(&f.Fence.Status, last(&f.Fence.Status).Number, v1alpha1.ResultFailed, "", now())
		f.Fence.Status.Attempts[len(f.Fence.Status.Attempts)-1].EndedAt = &at
	}
	for i, agent := range order {
		want, pause := []string{power, bmc}[i%2], time.Duration(0)
		if i > 0 && i%2 == 0 {
			pause = min(retryChainFirst<<(i/2-1), retryChainMax)
		}
		if agent != want || pauses[i] != pause {
			t.Errorf("attempt %d is of %s after %s, want %s after %s", i+1, agent, pauses[i], want, pause)
		}
	}
	if pauses[13-1] != retryChainMax {
		t.Errorf("the pauses are %v", pauses)
	}
}

func TestConfirmationsDoNotCountAsTries(t *testing.T) {
	f := facts(agents(power, bmc), attempted(power, v1alpha1.ResultFailed),
		attempted(confirmation, v1alpha1.ResultContradicted)).Fence
	if agent, pause := f.next(now()); agent != bmc || pause != 0 {
		t.Errorf("%s after %s", agent, pause)
	}
	f = facts(agents(power), attempted(confirmation, v1alpha1.ResultContradicted)).Fence
	if agent, pause := f.next(now()); agent != power || pause != 0 {
		t.Errorf("%s after %s", agent, pause)
	}
	f.Spec.Agents = facts(agents(power, bmc)).Fence.Spec.Agents
	f.Status.Attempts[0].Number = 0 // the status was changed by hand
	if agent, pause := f.next(now()); agent != power || pause != 0 {
		t.Errorf("%s after %s, tried %d times", agent, pause, f.tried())
	}
	if n := (Fence{}).tried(); n != 0 {
		t.Errorf("tried %d", n)
	}
}

// The last attempt of each agent is kept, because it shows that its agent has something to undo.
func TestLastAttemptOfEachAgentIsKept(t *testing.T) {
	f := facts(agents(storage, power, bmc), attempted(storage, v1alpha1.ResultTimedOut), attempted(power,
		v1alpha1.ResultFailed))
	for range maxAttempts - 2 {
		attempted(bmc, v1alpha1.ResultFailed)(&f)
	}
	f.begin(&f.Fence.Status, power, now())
	s := f.Fence.Status
	if len(s.Attempts) != maxAttempts || s.Attempts[0].Agent != storage || s.Attempts[1].Agent != bmc ||
		s.Attempts[1].Number != 3 || last(&s).Agent != power || last(&s).Number != maxAttempts+1 {
		t.Errorf("%+v", s.Attempts)
	}
	for i := range s.Attempts { // the status was changed by hand
		s.Attempts[i].Agent = fmt.Sprint(i)
	}
	f.Fence.Status = s
	if f.begin(&f.Fence.Status, power, now()); len(f.Fence.Status.Attempts) != maxAttempts {
		t.Errorf("%d attempts", len(f.Fence.Status.Attempts))
	}
}

// The attempt of a proof holds the pods that the proof releases.
func TestAttemptOfProofIsKept(t *testing.T) {
	f := facts(agents(medik8s, power), proved(medik8s))
	for range maxAttempts {
		f.begin(&f.Fence.Status, medik8s, now())
	}
	if s := f.Fence.Status; len(s.Attempts) != maxAttempts || s.Attempts[0].Number != s.Proof.Attempt {
		t.Errorf("%+v", s.Attempts)
	}
}

func TestProofRecordsNodeState(t *testing.T) {
	same := func(f *Facts) {
		down()(f)
		f.NodeRead, f.Lease.ResourceVersion, f.LeaseRead = read(3), "8", read(4)
	}
	after := func(f *Facts) { same(f); f.Node.BootID = "boot2" }
	gone := func(f *Facts) {
		f.Node, f.NodeRead, f.Lease, f.LeaseRead = objects.Node{}, read(3), objects.Lease{}, read(4)
	}
	for name, c := range map[string]struct {
		facts Facts
		want  v1alpha1.Proof
	}{
		power: {facts(attempted(power, ""), ran(RunSucceeded), same),
			v1alpha1.Proof{Covers: v1alpha1.CoversUntilUnfenced, BootID: "boot", LeaseVersion: "8"}},
		medik8s: {facts(agents(medik8s), attempted(medik8s, ""), ran(RunSucceeded), after),
			v1alpha1.Proof{Covers: v1alpha1.CoversReboot, BootID: "boot", LeaseVersion: "8"}},
		storage: {facts(agents(storage), attempted(storage, ""), ran(RunSucceeded), after),
			v1alpha1.Proof{Covers: v1alpha1.CoversVolumes, Volumes: volumesOf(storage), BootID: "boot2",
				LeaseVersion: "8"}},
		byHandAgent: {facts(agents(byHandAgent), attempted(byHandAgent, ""), confirm("words"), after),
			v1alpha1.Proof{Covers: v1alpha1.CoversUntilUnfenced, BootID: "boot2", LeaseVersion: "8"}},
		confirmation: {facts(attempted(confirmation, ""), confirm("words"), after),
			v1alpha1.Proof{Covers: v1alpha1.CoversUntilUnfenced, BootID: "boot2", LeaseVersion: "8"}},
		bmc: {facts(agents(bmc), attempted(bmc, ""), ran(RunSucceeded), gone),
			v1alpha1.Proof{Covers: v1alpha1.CoversUntilUnfenced, BootID: "boot"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := written(t, c.facts)
			c.want.Attempt, c.want.Agent, c.want.ProvenAt = 1, name, metav1.NewTime(now())
			c.want.MachineID, c.want.SystemUUID = "id", "uuid"
			a := last(s)
			if !reflect.DeepEqual(*s.Proof, c.want) || a.Result != v1alpha1.ResultProven || !a.EndedAt.Time.Equal(now()) ||
				a.Message != "words" || !slices.Equal(a.TerminatingPods, []types.UID{"pod"}) {
				t.Errorf("%+v of %+v", s.Proof, a)
			}
			if !is(s, v1alpha1.ConditionFenced) || s.Phase != v1alpha1.PhaseFenced {
				t.Errorf("phase %s, %+v", s.Phase, s.Conditions)
			}
		})
	}
}

// An attempt may have begun before the Node reported its machine.
func TestProofRecordsMachineOfNode(t *testing.T) {
	nameless := func(a *v1alpha1.Attempt) { a.MachineID, a.SystemUUID = "", "" }
	s := written(t, facts(attempted(power, "", nameless), ran(RunSucceeded), down(), func(f *Facts) {
		f.NodeRead, f.LeaseRead = read(3), read(4)
	}))
	if p := s.Proof; p.MachineID != "id" || p.SystemUUID != "uuid" {
		t.Errorf("%+v", p)
	}
}

// A vacant fence does not count against the limits of policies, so its node must be known to be empty.
func TestVacantFences(t *testing.T) {
	after := func(alter ...func(*Facts)) Fence { return Fence{Status: *written(t, facts(alter...))} }
	for name, c := range map[string]struct {
		fence Fence
		want  bool
	}{
		"one without conditions":        {Fence{}, false},
		"one in force":                  {facts(proved(power)).Fence, false},
		"one whose Node was deleted":    {after(proved(power), nodeGone, emptied), true},
		"one whose Node is there again": {after(proved(power), vacant, down()), false},
		"ending":                        {after(proved(power), vacant, terminating), false},
		"not in force":                  {facts(notVacant).Fence, false},
	} {
		if got := c.fence.Vacant(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func notVacant(f *Facts) {
	set(&f.Fence.Status, now(), v1alpha1.ConditionFenced, false, ReasonNodeDeleted)
}

// The status holds the message of the agent, and drops the pods of an attempt without a proof.
func TestEndedAttemptHasMessage(t *testing.T) {
	long := strings.Repeat("x", 2*maxMessage)
	for name, c := range map[string]struct {
		facts  Facts
		result v1alpha1.Result
		reason Reason
		words  string
	}{
		"failed": {facts(attempted(power, ""), ran(RunFailed)), v1alpha1.ResultFailed, ReasonAgentFailed, "words"},
		"failed with many words": {
			facts(attempted(power, ""), ran(RunFailed, func(r *RunFacts) { r.Message = long })), v1alpha1.ResultFailed,
			ReasonAgentFailed, "xxx"},
		"could not be started": {
			facts(attempted(power, "", startedAgo(time.Hour)), ran(RunAbsent, silence), refusedRun(1)), v1alpha1.ResultTimedOut,
			ReasonAgentTimedOut, "no PodTemplate"},
		"an earlier one could not be started": {
			facts(attempted(power, "", startedAgo(time.Hour)), ran(RunAbsent, silence), refusedRun(2)), v1alpha1.ResultTimedOut,
			ReasonAgentTimedOut, ""},
		"could not be asked": {
			facts(attempted(power, "", startedAgo(time.Hour)), ran(RunUnknown), refusedRun(1)), v1alpha1.ResultTimedOut,
			ReasonAgentTimedOut, "words"},
		"rebooted meanwhile": {
			facts(attempted(power, ""), ran(RunSucceeded), down(rebooted), func(f *Facts) {
				f.NodeRead, f.LeaseRead = read(3), read(4)
			}), v1alpha1.ResultFailed, ReasonAgentFailed, "The node was rebooted while its agent was at work,"},
		"canceled": {
			facts(attempted(power, ""), ran(RunSucceeded), terminating), v1alpha1.ResultCanceled, ReasonAgentCanceled, "words"},
		"the node of a policy came back": {
			facts(byPolicy, attempted(power, ""), ran(RunAbsent), down(ready)), v1alpha1.ResultCanceled, ReasonAgentCanceled,
			ReasonNodeReady.Sentence()},
	} {
		t.Run(name, func(t *testing.T) {
			s := written(t, c.facts)
			a := last(s)
			if a.Result != c.result || !strings.HasPrefix(a.Message, c.words) || c.words == "" && a.Message != "" ||
				len(a.Message) > maxMessage || a.EndedAt == nil || a.TerminatingPods != nil {
				t.Errorf("%+v", a)
			}
			fenced := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFenced)
			if fenced.Status != metav1.ConditionFalse || fenced.Reason != string(c.reason) || len(fenced.Message) > maxMessage ||
				!strings.Contains(fenced.Message, "Agent power: "+c.words) || s.Proof != nil || s.Phase != v1alpha1.PhaseFailed {
				t.Errorf("%+v, phase %s", fenced, s.Phase)
			}
		})
	}
}

func refusedRun(attempt int32) func(*Facts) {
	return func(f *Facts) {
		f.Sight.Refused, f.Sight.RefusedBy = Run{Attempt: attempt, Agent: power}, "no PodTemplate"
	}
}

func TestContradictedProofIsWithdrawn(t *testing.T) {
	f := facts(attempted(power, v1alpha1.ResultFailed), proved(power), released, down(), renewedFor(SilentAfter))
	s := written(t, f)
	a := last(s)
	if s.Proof != nil || a.Result != v1alpha1.ResultContradicted || a.TerminatingPods != nil ||
		s.Attempts[0].Result != v1alpha1.ResultFailed || is(s, v1alpha1.ConditionFenced) ||
		!is(s, v1alpha1.ConditionReleased) {
		t.Errorf("%+v", s)
	}
	f.Fence.Status.Attempts = nil // the status was changed by hand
	if s := written(t, f); s.Proof != nil {
		t.Errorf("%+v", s)
	}
}

func TestRemovedTaintClearsReleased(t *testing.T) {
	s := written(t, facts(released, down(), emptied))
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReleased); c.Status != metav1.ConditionFalse ||
		c.Reason != string(ReasonContradicted) {
		t.Errorf("%+v", c)
	}
}

func TestTaintedNodeSetsReleased(t *testing.T) {
	s := written(t, facts(proved(power), down(tainted)))
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReleased)
	if c.Status != metav1.ConditionTrue || s.Phase != v1alpha1.PhaseReleased || !c.LastTransitionTime.Time.Equal(now()) {
		t.Errorf("%+v, phase %s", c, s.Phase)
	}
	if !is(s, v1alpha1.ConditionFenced) || s.Proof == nil {
		t.Errorf("%+v", s)
	}
}

// A fence proves nothing from the first write of its end on.
func TestEndOfFenceIsRecordedByStep(t *testing.T) {
	long := metav1.NewTime(ago(time.Hour))
	f := facts(agents(power, medik8s), attempted(power, v1alpha1.ResultTimedOut),
		attempted(medik8s, v1alpha1.ResultFailed), attempted(power, v1alpha1.ResultFailed, func(a *v1alpha1.Attempt) {
			a.UndoneAt = &long
		}), proved(power), released, terminating)
	s := written(t, f)
	if is(s, v1alpha1.ConditionFenced) || s.Proof == nil || s.Phase != v1alpha1.PhaseUnfencing ||
		!is(s, v1alpha1.ConditionReleased) {
		t.Fatalf("%+v", s)
	}
	f.Fence.Status = *s
	down(tainted)(&f)
	undoneBy(t, &f, 4, power)
	if a := f.Fence.Status.Attempts; a[0].UndoneAt == nil || a[1].UndoneAt != nil || !a[2].UndoneAt.Equal(&long) ||
		!a[3].UndoneAt.Time.Equal(now()) {
		t.Fatalf("%+v", a)
	}
	undoneBy(t, &f, 2, medik8s)
	down()(&f)
	s = written(t, f)
	if !is(s, v1alpha1.ConditionReturned) || is(s, v1alpha1.ConditionReleased) || is(s, v1alpha1.ConditionFenced) ||
		s.Phase != v1alpha1.PhaseReturned || s.Proof == nil {
		t.Errorf("%+v", s)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReturned); c.Reason != string(ReasonEnded) {
		t.Errorf("%+v", c)
	}
}

// A fence that is ended before an agent was started reports its end.
func TestEndOfFenceBeforeFirstAttempt(t *testing.T) {
	s := written(t, facts(terminating, down()))
	for _, kind := range []string{v1alpha1.ConditionFenced, v1alpha1.ConditionReleased} {
		c := meta.FindStatusCondition(s.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != string(ReasonEnded) {
			t.Errorf("%s: %+v", kind, c)
		}
	}
}

// undoneBy checks that this attempt is undone next, and undoes it.
func undoneBy(t *testing.T, f *Facts, attempt int32, agent string) {
	t.Helper()
	f.Fence.Status = *written(t, *f) // the try
	run := Run{Attempt: attempt, Agent: agent, Undo: true, Try: 1}
	if d := Decide(*f, now()); d.Action != ReadRun || d.Run != run {
		t.Fatalf("%v of %+v", d.Action, d.Run)
	}
	f.Run = RunFacts{Read: read(2), Of: run, State: RunSucceeded}
	f.Fence.Status = *written(t, *f)
}

// The agents that have something to undo do so in the reverse order, each for all of its attempts.
func TestToUndo(t *testing.T) {
	for name, c := range map[string]struct {
		fence Fence
		// want is the number of the attempt that is undone first, and agents undo their fences in this order.
		want   int32
		agents []string
	}{
		"nothing":           {facts().Fence, 0, nil},
		"with undo":         {facts(attempted(power, "")).Fence, 1, []string{power}},
		"without undo":      {facts(agents(bmc), attempted(bmc, "")).Fence, 0, nil},
		"a custom resource": {facts(agents(medik8s), attempted(medik8s, "")).Fence, 1, []string{medik8s}},
		"a NetworkFence":    {facts(agents(storage), attempted(storage, "")).Fence, 1, []string{storage}},
		"a person's word": {
			facts(agents(byHandAgent), attempted(byHandAgent, ""), attempted(confirmation, "")).Fence, 0, nil},
		"one of no agent": {facts(attempted("other", "")).Fence, 0, nil},
		"the last one": {facts(agents(power, medik8s), attempted(power, ""), attempted(medik8s, "")).Fence, 2,
			[]string{medik8s, power}},
		"one before it": {facts(agents(power, bmc), attempted(power, ""), attempted(bmc, "")).Fence, 1, []string{power}},
		"two of an agent": {facts(agents(power, medik8s), attempted(power, ""), attempted(medik8s, ""),
			attempted(power, "")).Fence, 3, []string{power, medik8s}},
		"undone": {facts(attempted(power, "", undone)).Fence, 0, nil},
		"one before an undone one": {
			facts(agents(power, medik8s), attempted(power, ""), attempted(medik8s, "", undone)).Fence, 1, []string{power}},
		"abandoned": {facts(attempted(power, ""), unfence(v1alpha1.UnfenceAbandon)).Fence, 0, nil},
	} {
		var got int32
		if a := c.fence.toUndo(); a != nil {
			got = a.Number
		}
		if agents := c.fence.Undoes(); got != c.want || !slices.Equal(agents, c.agents) {
			t.Errorf("%s: attempt %d, agents %q; want %d, %q", name, got, agents, c.want, c.agents)
		}
	}
}

func TestEndedByRequest(t *testing.T) {
	ended := func(is bool, why Reason) Fence {
		var f Fence
		set(&f.Status, now(), v1alpha1.ConditionReturned, is, why)
		return f
	}
	for name, c := range map[string]struct {
		fence Fence
		want  bool
	}{
		"in force": {facts(proved(power)).Fence, false}, "ended by request": {ended(true, ReasonEnded), true},
		"rebooted": {ended(true, ReasonRebooted), false}, "not ended": {ended(false, ReasonEnded), false},
	} {
		if got := c.fence.EndedByRequest(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestPhases(t *testing.T) {
	for want, f := range map[v1alpha1.Phase]Facts{
		v1alpha1.PhaseRequested: facts(),
		v1alpha1.PhaseFencing:   facts(attempted(power, "")),
		v1alpha1.PhaseFailed:    facts(attempted(power, v1alpha1.ResultFailed)),
		v1alpha1.PhaseFenced:    facts(proved(power)),
		v1alpha1.PhaseReleased:  facts(proved(power), released),
		v1alpha1.PhaseUnfencing: facts(proved(power), released, ending),
		v1alpha1.PhaseReturned:  facts(proved(power), ending, returnedAgo(0)),
	} {
		if got := phaseOf(&f.Fence.Status); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A condition keeps the time at which it took its status.
func TestConditionsKeepTheirTime(t *testing.T) {
	var s v1alpha1.NodeFenceStatus
	set(&s, ago(time.Minute), v1alpha1.ConditionFenced, false, ReasonFencing)
	set(&s, now(), v1alpha1.ConditionFenced, false, ReasonAgentFailed, "words")
	c := s.Conditions[0]
	if !c.LastTransitionTime.Time.Equal(ago(time.Minute)) || c.Reason != string(ReasonAgentFailed) ||
		c.Message != ReasonAgentFailed.Sentence()+" words" {
		t.Errorf("%+v", c)
	}
	set(&s, now(), v1alpha1.ConditionFenced, true, ReasonFenced)
	if c := s.Conditions[0]; len(s.Conditions) != 1 || !c.LastTransitionTime.Time.Equal(now()) {
		t.Errorf("%+v", s.Conditions)
	}
	if at := (Fence{}).since(v1alpha1.ConditionFenced); !at.IsZero() {
		t.Errorf("since %s", at)
	}
}

func TestReasonsOfResults(t *testing.T) {
	for result, want := range map[v1alpha1.Result]Reason{
		v1alpha1.ResultProven: ReasonFenced, v1alpha1.ResultTimedOut: ReasonAgentTimedOut,
		v1alpha1.ResultCanceled: ReasonAgentCanceled, v1alpha1.ResultContradicted: ReasonContradicted,
		v1alpha1.ResultFailed: ReasonAgentFailed, "Other": ReasonAgentFailed,
	} {
		if got := reasonOf(result); got != want {
			t.Errorf("%s: %s", result, got)
		}
	}
}
