package fencing

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// forPerson holds the reasons of waits in which a person may have to act. NodeDeleted is not among them: as a reason of
// the condition Fenced, it means that the fence is vacant.
var forPerson = []Reason{ReasonNodeNotFound, ReasonControlPlane, ReasonWaitsForConfirmation, ReasonNodeRuns,
	ReasonMachineReplaced, ReasonNeedsReboot, ReasonRemainsOnNode, ReasonUnfenceFailed, ReasonAwaitsReturn}

// tell replaces a wait by a write of the status that shows it, or that shows the generation of the spec. Events are
// gone after an hour, and such a wait may last for weeks. The write is the only one until the reason changes. It also
// says that the Node has lost the taint out-of-service, such as after a boot, so that it is not released any more.
func (f Facts) tell(d Decision, now time.Time) Decision {
	if d.Action != Wait || f.Rules.DryRun || f.Fence.unowned() || f.Fence.Returned() || !f.FenceRead.Fresh(now) {
		return d
	}
	condition, why := f.told(d.Reason)
	bare := f.Fence.is(v1alpha1.ConditionReleased) && f.NodeRead.FreshAfter(f.FenceRead, now) && !f.Node.OwnTaint
	if why == "" && !bare && f.Fence.Status.ObservedGeneration == f.Fence.Generation {
		return d
	}
	out := f.write(d.Reason, func(s *v1alpha1.NodeFenceStatus) {
		if why != "" {
			name(s, now, condition, why)
			f.blame(s)
		}
		if bare {
			set(s, now, v1alpha1.ConditionReleased, false, d.Reason)
		}
	})
	out.Tells, out.Empty = true, d.Empty
	return out
}

// told returns the reason to record for a wait, and the condition that gets it: Returned for a fence that ends, and
// Fenced for any other. The reason is "" if the condition has it already, or says nothing that is over.
func (f Facts) told(why Reason) (condition string, told Reason) {
	condition = v1alpha1.ConditionFenced
	if f.Fence.Ending() || f.Fence.Status.Proof != nil && !f.Fence.is(condition) && !unkept(&f.Fence.Status) {
		condition = v1alpha1.ConditionReturned
	}
	var recorded Reason
	if c := meta.FindStatusCondition(f.Fence.Status.Conditions, condition); c != nil {
		recorded = Reason(c.Reason)
	}
	over := slices.Contains(forPerson, recorded)
	switch why {
	case ReasonFenced, ReasonReleased, ReasonNodeStillReady:
		told = ReasonFenced
	case ReasonAllAgentsFailed: // otherwise the last attempt's own words say more
		told = why
	default:
		over = slices.Contains(forPerson, why)
		told = why
	}
	if !over || told == recorded || why == ReasonNodeRuns && condition == v1alpha1.ConditionFenced {
		return condition, "" // a node that runs on in spite of a proof soon contradicts it
	}
	return condition, told
}

// name sets the reason of a condition whose status stays in force, and is False without one.
func name(s *v1alpha1.NodeFenceStatus, now time.Time, condition string, why Reason) {
	if meta.FindStatusCondition(s.Conditions, condition) == nil {
		set(s, now, condition, false, why)
	}
	c := meta.FindStatusCondition(s.Conditions, condition)
	c.Reason, c.Message = string(why), why.Sentence()
}
