package fencing

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Finalizer is the finalizer of every NodeFence whose fence has begun and not ended.
const Finalizer = objects.FenceFinalizer

// Fence is the record of a NodeFence. Its methods derive the state of the fence from spec and status.
type Fence objects.NodeFence

// FenceOf returns the record of a NodeFence, which shares memory with o.
func FenceOf(o *v1alpha1.NodeFence) Fence { return Fence(objects.NodeFenceOf(o)) }

// is reports whether a condition of the fence is True.
func (f Fence) is(condition string) bool {
	return meta.IsStatusConditionTrue(f.Status.Conditions, condition)
}

// since returns the last transition time of a condition, or the zero time if the condition is missing.
func (f Fence) since(condition string) metav1.Time {
	if c := meta.FindStatusCondition(f.Status.Conditions, condition); c != nil {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}

// unkept reports whether the proof was withdrawn because the finalizer was gone while the fence was in force.
func unkept(s *v1alpha1.NodeFenceStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFenced)
	return c != nil && c.Status == metav1.ConditionUnknown
}

// unowned reports whether no NodeFence remains, or only one that other programs still keep.
func (f Fence) unowned() bool { return f.UID == "" || f.Terminating && !f.Finalized }

// Ending reports whether the fence has to end at once. A deletion of the NodeFence asks for that as well, except for a
// fence of volumes: health checks delete it once the node is healthy, and writes still buffered on the node would then
// reach the volumes. Such a fence ends only when the node is back, which would end it anyway.
func (f Fence) Ending() bool {
	return f.Terminating && !f.OfVolumes() || f.Spec.Unfence == v1alpha1.UnfenceNow || f.abandoned()
}

// abandoned reports whether the fence ends without any undo by the agents.
func (f Fence) abandoned() bool { return f.Spec.Unfence == v1alpha1.UnfenceAbandon }

// Returned reports whether the fence has ended. Its NodeFence is kept for some time.
func (f Fence) Returned() bool { return f.is(v1alpha1.ConditionReturned) }

// EndedByRequest reports whether the fence has ended by request, and not by the return of its node.
func (f Fence) EndedByRequest() bool {
	c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionReturned)
	return f.Returned() && c.Reason == string(ReasonEnded)
}

// OfVolumes reports whether the proof covers only the access to volumes, so that the node's processes may run on.
func (f Fence) OfVolumes() bool {
	return f.Status.Proof != nil && f.Status.Proof.Covers == v1alpha1.CoversVolumes
}

// Vacant reports whether the fence is in force, its Node was deleted and the node was found empty. Such a fence
// releases no more pods and stays only for the undo of its agents.
func (f Fence) Vacant() bool {
	c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionFenced)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == string(ReasonNodeDeleted)
}

// MayKeepVolumes reports whether an agent may keep the node from volumes: it was started, or was about to be, and has
// not undone its fence.
func (f Fence) MayKeepVolumes() bool {
	return !f.Returned() && slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		agent := f.agent(a.Agent)
		return a.UndoneAt == nil && (agent == nil || agent.Covers == v1alpha1.CoversVolumes)
	})
}

// Evidence returns the evidence that a fence gives about a pod.
func Evidence(f Fence, pod types.UID) objects.Fence {
	p := f.Status.Proof
	if p == nil || f.Ending() || !f.Finalized || !f.is(v1alpha1.ConditionFenced) {
		return objects.Fence{}
	}
	attempt := find(&f.Status, p.Attempt)
	return objects.Fence{InForce: true, Coverage: p.Covers, Volumes: p.Volumes, BootID: p.BootID,
		Machine: machineOf(p), SinceTerminating: slices.Contains(attempt.TerminatingPods, pod)}
}

// confirmation is the name of the agent that stands for a person's confirmation.
const confirmation = "confirmation"

// agent returns the agent with this name, which is that of the spec or the confirmation, or nil.
func (f Fence) agent(name string) *v1alpha1.Agent {
	if name == confirmation {
		return &v1alpha1.Agent{Name: confirmation, Covers: v1alpha1.CoversUntilUnfenced, Manual: &v1alpha1.ManualAgent{}}
	}
	for i := range f.Spec.Agents {
		if f.Spec.Agents[i].Name == name {
			return &f.Spec.Agents[i]
		}
	}
	return nil
}

// OwnWord reports whether the confirmation names this fence and was not copied from another one.
func (f Fence) OwnWord() bool {
	return f.Spec.Confirmation != "" && f.Spec.ConfirmationUID != "" && f.Spec.ConfirmationUID == f.UID
}

// Confirmed reports whether the confirmation is a proof that the node has not contradicted.
func (f Fence) Confirmed() bool {
	return f.OwnWord() && !slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		return f.manual(a) && a.Result == v1alpha1.ResultContradicted && a.Message == f.Spec.Confirmation
	})
}

// manual reports whether an attempt waits for a person's confirmation or records one.
func (f Fence) manual(a v1alpha1.Attempt) bool {
	agent := f.agent(a.Agent)
	return agent != nil && agent.Manual != nil
}

// attempt returns the attempt without a result, or nil if no agent is at work.
func (f Fence) attempt() *v1alpha1.Attempt {
	if n := len(f.Status.Attempts); n > 0 && f.Status.Attempts[n-1].EndedAt == nil {
		return &f.Status.Attempts[n-1]
	}
	return nil
}

// next returns the name of the agent to try next, or "", and the pause before it. The chain starts again after its last
// agent.
func (f Fence) next(now time.Time) (agent string, pause time.Duration) {
	if f.Confirmed() {
		return confirmation, 0
	}
	chain, tried := f.Spec.Agents, f.tried()
	switch {
	case len(chain) == 0, f.GivenUp: // the API refuses an empty chain; after GivenUp another remediator works
		return "", 0
	case tried <= 0:
		return chain[0].Name, 0
	}
	if f.exhausted() {
		pause = f.pause(now)
	}
	return chain[tried%len(chain)].Name, pause
}

// pause returns the pause before a new round of the agents, which doubles with each round up to retryChainMax.
func (f Fence) pause(now time.Time) time.Duration {
	pause := retryChainFirst
	for range min(f.tried()/len(f.Spec.Agents)-1, 10) {
		pause = min(2*pause, retryChainMax)
	}
	last := f.Status.Attempts[len(f.Status.Attempts)-1]
	return max(left(pause, last.EndedAt.Time, now), 0)
}

// left returns the rest of a time limit that began at a time in the status, negative once it has passed. A start in the
// future comes from another clock, and prolongs the wait by at most the limit or, if longer, clockSkew. A start further
// ahead than that is by a wrong clock, so the limit counts as passed.
func left(limit time.Duration, began, now time.Time) time.Duration {
	if began.Sub(now) > max(limit, clockSkew) {
		return -limit
	}
	return min(limit-now.Sub(began), limit)
}

// nextOfVolumes returns the name of the next agent of volumes that has no part in the proof, or "", and the pause
// before it. A fence that was given up starts no agent, because another remediator is at work.
func (f Fence) nextOfVolumes(now time.Time) (agent string, pause time.Duration) {
	if f.GivenUp {
		return "", 0
	}
	chain, last := f.Spec.Agents, -1
	if n := len(f.Status.Attempts); n > 0 {
		last = slices.IndexFunc(chain, func(a v1alpha1.Agent) bool { return a.Name == f.Status.Attempts[n-1].Agent })
	}
	for i := range chain {
		at := (last + 1 + i) % len(chain)
		a := chain[at]
		if a.Covers != v1alpha1.CoversVolumes || slices.ContainsFunc(f.Status.Proof.Volumes,
			func(v v1alpha1.CoveredVolumes) bool { return v.Agent == a.Name }) {
			continue
		}
		if at <= last {
			pause = f.pause(now)
		}
		return a.Name, pause
	}
	return "", 0
}

// exhausted reports whether every agent was tried in this round.
func (f Fence) exhausted() bool {
	agents, tried := len(f.Spec.Agents), f.tried()
	return agents > 0 && tried > 0 && tried%agents == 0
}

// tried returns the number of attempts of the chain, without confirmations, whose attempts are never dropped.
func (f Fence) tried() int {
	n := len(f.Status.Attempts)
	if n == 0 {
		return 0
	}
	count := int(f.Status.Attempts[n-1].Number)
	for _, a := range f.Status.Attempts {
		if a.Agent == confirmation {
			count--
		}
	}
	return count
}

// toUndo returns the last attempt whose agent has something to undo, or nil. The undo covers all attempts of that
// agent.
func (f Fence) toUndo() *v1alpha1.Attempt {
	for i, attempt := range slices.Backward(f.Status.Attempts) {
		if f.isToUndo(attempt) {
			return &f.Status.Attempts[i]
		}
	}
	return nil
}

// isToUndo reports whether the agent of an attempt has something to undo.
func (f Fence) isToUndo(attempt v1alpha1.Attempt) bool {
	agent := f.agent(attempt.Agent)
	return !f.abandoned() && attempt.UndoneAt == nil && agent != nil &&
		(agent.Job != nil && agent.Job.Undo || agent.Remediation != nil || agent.NetworkFence != nil)
}

// Undoes returns the names of the agents that have something to undo when the fence ends, the last one first.
func (f Fence) Undoes() (names []string) {
	for _, attempt := range slices.Backward(f.Status.Attempts) {
		if f.isToUndo(attempt) && !slices.Contains(names, attempt.Agent) {
			names = append(names, attempt.Agent)
		}
	}
	return names
}

// acted reports whether an agent may have fenced the node, or may do so later: its object was seen, or its success was
// accepted as a proof, even if contradicted later.
func (f Fence) acted(agent string) bool {
	return slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		return a.Agent == agent && (a.ObjectSeen || a.Result == v1alpha1.ResultProven ||
			a.Result == v1alpha1.ResultContradicted)
	})
}
