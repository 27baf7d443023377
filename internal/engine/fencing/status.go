package fencing

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// maxAttempts, maxPods and maxMessage are bounds of the API (pkg/apis/fencing/v1alpha1).
const maxAttempts, maxPods, maxMessage = 16, 1024, 2048

// write returns the step that writes the status after change.
func (f Facts) write(why Reason, change func(*v1alpha1.NodeFenceStatus)) Decision {
	status := f.Fence.Status.DeepCopy()
	change(status)
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = f.Fence.Generation
	}
	status.ObservedGeneration, status.Phase = f.Fence.Generation, phaseOf(status)
	return Decision{Action: WriteStatus, Reason: why, Status: status}
}

// begin records an attempt that is about to start.
func (f Facts) begin(s *v1alpha1.NodeFenceStatus, agent string, now time.Time) {
	number := int32(1)
	if n := len(s.Attempts); n > 0 {
		number = s.Attempts[n-1].Number + 1
	}
	s.Attempts = append(s.Attempts, v1alpha1.Attempt{Number: number, Agent: agent, StartedAt: metav1.NewTime(now),
		BootID: f.Node.BootID, MachineID: f.Node.Machine.MachineID, SystemUUID: f.Node.Machine.SystemUUID,
		TerminatingPods: share(f.Remaining.Held, maxPods),
		ObjectSeen: slices.ContainsFunc(s.Attempts, func(a v1alpha1.Attempt) bool {
			return a.Agent == agent && a.ObjectSeen // the earlier attempt may be dropped
		})})
	if len(s.Attempts) > maxAttempts {
		i := slices.IndexFunc(s.Attempts, func(a v1alpha1.Attempt) bool {
			return repeated(s.Attempts, a) && (s.Proof == nil || a.Number != s.Proof.Attempt)
		})
		i = max(i, 0) // the status was changed by hand
		s.Attempts = slices.Delete(s.Attempts, i, i+1)
	}
	if s.Proof == nil {
		set(s, now, v1alpha1.ConditionFenced, false, ReasonFencing)
	}
}

// share limits the pods to the number of places, round-robin by namespace, so that no tenant can take all of them.
func share(pods []HeldPod, places int) (all []types.UID) {
	of := map[string][]types.UID{}
	for _, pod := range pods {
		of[pod.Namespace] = append(of[pod.Namespace], pod.UID)
	}
	names := slices.Sorted(maps.Keys(of))
	for turn := 0; len(all) < min(len(pods), places); turn++ {
		for _, name := range names {
			if turn < len(of[name]) && len(all) < places {
				all = append(all, of[name][turn])
			}
		}
	}
	return all
}

// repeated reports whether the same agent has a later attempt, whose undo covers this one too. maxAttempts exceeds the
// number of agents, so the list always holds one.
func repeated(all []v1alpha1.Attempt, a v1alpha1.Attempt) bool {
	return slices.ContainsFunc(all, func(other v1alpha1.Attempt) bool {
		return other.Agent == a.Agent && other.Number > a.Number
	})
}

// conclude records the result of an attempt.
func conclude(s *v1alpha1.NodeFenceStatus, number int32, result v1alpha1.Result, message string, now time.Time) {
	at, attempt := metav1.NewTime(now), find(s, number)
	attempt.Result, attempt.Message, attempt.EndedAt = result, text.Truncate(message, maxMessage), &at
	if result != v1alpha1.ResultProven {
		attempt.TerminatingPods = nil // the list may be long, and only a proof needs it
	}
}

// find returns a pointer to an attempt in the status, so that it can be changed.
func find(s *v1alpha1.NodeFenceStatus, number int32) *v1alpha1.Attempt {
	i := slices.IndexFunc(s.Attempts, func(a v1alpha1.Attempt) bool { return a.Number == number })
	if i < 0 {
		return &v1alpha1.Attempt{} // the status was changed by hand
	}
	return &s.Attempts[i]
}

// set sets a condition, whose transition time stays if its status does. The message is the reason's sentence, followed
// by words if there is more to say.
func set(s *v1alpha1.NodeFenceStatus, now time.Time, condition string, to bool, why Reason, words ...string) {
	status := metav1.ConditionFalse
	if to {
		status = metav1.ConditionTrue
	}
	message := text.Truncate(strings.Join(append([]string{why.Sentence()}, words...), " "), maxMessage)
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: condition, Status: status, Reason: string(why),
		Message: message, LastTransitionTime: metav1.NewTime(now)})
}

func phaseOf(s *v1alpha1.NodeFenceStatus) v1alpha1.Phase {
	is := func(condition string) bool { return meta.IsStatusConditionTrue(s.Conditions, condition) }
	var last v1alpha1.Attempt
	if n := len(s.Attempts); n > 0 {
		last = s.Attempts[n-1]
	}
	switch {
	case is(v1alpha1.ConditionReturned):
		return v1alpha1.PhaseReturned
	case s.Proof != nil && !is(v1alpha1.ConditionFenced) && !unkept(s):
		return v1alpha1.PhaseUnfencing
	case is(v1alpha1.ConditionReleased):
		return v1alpha1.PhaseReleased
	case s.Proof != nil:
		return v1alpha1.PhaseFenced
	case last.Number == 0:
		return v1alpha1.PhaseRequested
	case last.EndedAt == nil:
		return v1alpha1.PhaseFencing
	}
	return v1alpha1.PhaseFailed
}

// reasonOf returns the reason for the result of an attempt that ends without a proof. The cases Proven and Contradicted
// only complete the switch: prove and contradicted write these reasons themselves.
func reasonOf(r v1alpha1.Result) Reason {
	switch r {
	case v1alpha1.ResultProven:
		return ReasonFenced
	case v1alpha1.ResultTimedOut:
		return ReasonAgentTimedOut
	case v1alpha1.ResultCanceled:
		return ReasonAgentCanceled
	case v1alpha1.ResultContradicted:
		return ReasonContradicted
	case v1alpha1.ResultFailed:
	}
	return ReasonAgentFailed
}

// remediated sets the conditions Processing and Succeeded, which node health checks read. They try the next remediator
// as soon as Succeeded is False.
func (f Fence) remediated(s *v1alpha1.NodeFenceStatus, now time.Time) {
	f.Status = *s
	processing, succeeded, why := f.remediation()
	if why == "" {
		return
	}
	c := metav1.Condition{Type: v1alpha1.ConditionProcessing, Status: processing, Reason: string(why),
		Message: why.Sentence(), ObservedGeneration: f.Generation, LastTransitionTime: metav1.NewTime(now)}
	meta.SetStatusCondition(&s.Conditions, c)
	c.Type, c.Status = v1alpha1.ConditionSucceeded, succeeded
	meta.SetStatusCondition(&s.Conditions, c)
}

// remediation returns the conditions Processing and Succeeded and their reason. Before the first attempt, it is the
// reason of the wait for it, or "". A proof counts as success even after the end of its fence, unless the node has
// contradicted it.
func (f Fence) remediation() (processing, succeeded metav1.ConditionStatus, why Reason) {
	switch {
	case f.Status.Proof != nil:
		return metav1.ConditionFalse, metav1.ConditionTrue, ReasonFenced
	case f.Returned():
		return metav1.ConditionFalse, metav1.ConditionFalse, ReasonReturned
	case f.attempt() != nil:
		return metav1.ConditionTrue, metav1.ConditionUnknown, ReasonFencing
	case f.GivenUp:
		return metav1.ConditionFalse, metav1.ConditionFalse, ReasonHealthCheckGaveUp
	case f.exhausted():
		return metav1.ConditionFalse, metav1.ConditionFalse, ReasonAllAgentsFailed
	case len(f.Status.Attempts) > 0:
		return metav1.ConditionTrue, metav1.ConditionUnknown, ReasonFencing
	}
	if c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionFenced); c != nil {
		return metav1.ConditionFalse, metav1.ConditionUnknown, Reason(c.Reason)
	}
	return "", "", ""
}
