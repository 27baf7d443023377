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

// recordWait replaces a wait by a write of the status that shows it, or that shows the generation of the spec. Events
// are gone after an hour, and such a wait may last for weeks. The write is the only one until the reason changes. It
// also shows that the Node has lost the taint out-of-service, such as after a boot.
func (f Facts) recordWait(d Decision, now time.Time) Decision {
	if d.Action != Wait || f.Rules.DryRun || f.Fence.unowned() || f.Fence.Returned() || !f.FenceRead.Fresh(now) {
		return d
	}
	condition, why := f.unrecorded(d.Reason)
	bare := f.bare(now)
	if why == "" && !bare && f.Fence.Status.ObservedGeneration == f.Fence.Generation {
		return d
	}
	out := f.write(d.Reason, func(s *v1alpha1.NodeFenceStatus) {
		if why != "" {
			setReason(s, now, condition, why)
			f.noteUndo(s)
		}
		if bare {
			set(s, now, v1alpha1.ConditionReleased, false, d.Reason)
		}
	})
	out.RecordsWait, out.Empty = true, d.Empty
	return out
}

// bare reports whether the Node does not have the taint out-of-service, although the condition Released is True.
func (f Facts) bare(now time.Time) bool {
	return f.Fence.is(v1alpha1.ConditionReleased) && f.NodeRead.FreshAfter(f.FenceRead, now) && !f.Node.OwnTaint
}

// unrecorded returns the reason that a wait has to record, "" for none, and the condition that gets it: Returned for a
// fence that ends, and Fenced for any other. A wait for a person is recorded, and then the next wait in its place,
// unless it is a short one.
func (f Facts) unrecorded(wait Reason) (condition string, why Reason) {
	condition = v1alpha1.ConditionFenced
	if f.Fence.Ending() || f.Fence.Status.Proof != nil && !f.Fence.is(condition) && !unkept(&f.Fence.Status) {
		condition = v1alpha1.ConditionReturned
	}
	var recorded Reason
	if c := meta.FindStatusCondition(f.Fence.Status.Conditions, condition); c != nil {
		recorded = Reason(c.Reason)
	}
	short := wait == ReasonAwaitsVolumeList ||
		wait == ReasonNodeRuns && condition == v1alpha1.ConditionFenced // its renewals soon end the proof
	why = wait
	switch person := slices.Contains(forPerson, wait); {
	case short, !person && !slices.Contains(forPerson, recorded):
		return condition, ""
	case !person && condition == v1alpha1.ConditionFenced && f.Fence.is(condition):
		why = ReasonFenced // any other, such as NodeDeleted, would be a state of the fence
	}
	if why == recorded {
		return condition, ""
	}
	return condition, why
}

// setReason sets the reason of a condition whose status stays in force, and is False without one.
func setReason(s *v1alpha1.NodeFenceStatus, now time.Time, condition string, why Reason) {
	if meta.FindStatusCondition(s.Conditions, condition) == nil {
		set(s, now, condition, false, why)
	}
	c := meta.FindStatusCondition(s.Conditions, condition)
	c.Reason, c.Message = string(why), why.Sentence()
}
