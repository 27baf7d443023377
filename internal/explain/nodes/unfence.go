package nodes

import (
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// CheckUnfence is a pure function that returns the effect of ending the node's fence, or an error if that should not
// be requested.
func CheckUnfence(f Facts, to v1alpha1.Unfence) (p Plan, err error) {
	if err := f.known(); err != nil {
		return p, err
	}
	fence := f.active()
	if fence == nil {
		return p, ErrNotFenced
	}
	switch is := fence.Spec.Unfence; {
	case is == to:
		return p, fmt.Errorf("%w: spec.unfence is %s", ErrDone, to)
	case is == v1alpha1.UnfenceAbandon, to == v1alpha1.UnfenceWhenReleased && fencing.FenceOf(fence).Ending():
		return p, fmt.Errorf("%w: %s", ErrEnding, endsWords(fence))
	}
	switch to {
	case v1alpha1.UnfenceWhenReleased:
		f.planWhenReleased(&p, fence)
	case v1alpha1.UnfenceAbandon:
		f.planEnd(&p, fence)
		f.planAbandon(&p, fence)
	default:
		f.planEnd(&p, fence)
		f.planUndo(&p, fence)
	}
	return p, nil
}

// planWhenReleased adds the effect of undoing the fence once no pod or volume of before remains.
func (f Facts) planWhenReleased(p *Plan, fence *v1alpha1.NodeFence) {
	if undoes := fencing.FenceOf(fence).Undoes(); len(undoes) > 0 {
		p.effect("When no pod with a claim and no attached volume remains on the node, %s %s the fence, if the proof covers "+
			"UntilUnfenced.", agentNames(undoes), plural.Verb(len(undoes), "undoes", "undo"))
	} else {
		p.effect("No agent that was tried has anything to undo: start the machine yourself.")
	}
	p.effect("The taint node.kubernetes.io/out-of-service stays until the node has booted again.")
}

func (f Facts) planEnd(p *Plan, fence *v1alpha1.NodeFence) {
	if last := lastAttempt(fence.Status); last != nil && last.EndedAt == nil {
		p.effect("Agent %s is stopped, if it can be.", last.Agent)
	}
	if fence.Status.Proof == nil {
		p.effect("Nothing is proven, and nothing is released because of the fence.")
		return
	}
	p.effect("The proof ends at once: pods that are held are not released because of it, and its taint is removed.")
	switch left := remainingOf(f.Pods, f.Attachments); {
	case !left.OK():
		p.cost("The pods and volumes that remain on the node could not be read.")
	case left.Value.Leaving != fencing.Remains{}:
		r := left.Value.Leaving
		p.cost("On the node %s still %s: they wait for other evidence then.", plural.Verb(r.Pods+r.VolumeAttachments, "is",
			"are"), leaving(r))
	}
	facts := f.fenceFacts(fence)
	if !facts.Back() {
		p.cost("Nothing shows that the node was rebooted after the proof. If its processes run when it is unfenced, they " +
			"write beside their replacements, which destroys data.")
	}
}

func (f Facts) planUndo(p *Plan, fence *v1alpha1.NodeFence) {
	if undoes := fencing.FenceOf(fence).Undoes(); len(undoes) > 0 {
		p.effect("The fence is undone by %s, also where an attempt had no proof.", agentNames(undoes))
	}
}

func (f Facts) planAbandon(p *Plan, fence *v1alpha1.NodeFence) {
	if undoes := fencing.FenceOf(fence).Undoes(); len(undoes) > 0 {
		p.cost("volume-guard does not undo the work of %s: the node may stay off or cut off until you undo it.",
			agentNames(undoes))
	}
}

func agentNames(names []string) string {
	noun := "agent "
	if len(names) > 1 {
		noun = "agents "
	}
	return noun + strings.Join(names, ", ")
}

// Existing returns the NodeFence, nil if it does not exist or was not read.
func (f Facts) Existing() *v1alpha1.NodeFence { return f.fence() }

func (f Facts) Ended() bool { return f.fence() != nil && explain.FenceEnded(f.fence()) }
