package nodes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Reasons for the refusal of a request about a fence.
var (
	// ErrNoNode means that no Node has this name.
	ErrNoNode = errors.New("no Node has this name")
	ErrReady  = errors.New("the node is Ready, so its pods most likely run")
	// ErrControlPlane means that the node belongs to the control plane.
	ErrControlPlane = errors.New("the node is a control-plane node")
	// ErrFenced means that the node has a fence that has not ended.
	ErrFenced = errors.New("the node has a fence")
	// ErrNotFenced means that the node has no fence, or that its fence has ended.
	ErrNotFenced = errors.New("the node has no fence")
	// ErrVolumes means that the proof of the fence is about volumes, which no confirmation replaces.
	ErrVolumes = errors.New("the fence keeps the node from volumes until a reboot, and a confirmation changes nothing")
	// ErrEnding means that the fence is already ending.
	ErrEnding = errors.New("the fence is ended already")
	// ErrDone means that the fence already matches the request.
	ErrDone = errors.New("the fence already matches the request")
)

type Plan struct {
	// Replaces is the UID of the ended NodeFence that the request deletes first, empty for none.
	Replaces types.UID
	// Effects lists the consequences of the request, and Costs its risks.
	Effects, Costs []string
}

func (p *Plan) effect(format string, args ...any) {
	p.Effects = append(p.Effects, fmt.Sprintf(format, args...))
}

func (p *Plan) cost(format string, args ...any) {
	p.Costs = append(p.Costs, fmt.Sprintf(format, args...))
}

// known returns an error unless Node and NodeFence were read, because a request without a judgement is refused.
func (f Facts) known() error {
	switch {
	case !f.Fence.OK():
		return fmt.Errorf("read NodeFence %q: %w", f.Name, errOf(f.Fence))
	case !f.Node.OK():
		return fmt.Errorf("read node %q: %w", f.Name, errOf(f.Node))
	}
	return nil
}

func errOf[T any](r explain.Read[T]) error { return cmp.Or(r.Err, errors.New("it was not read")) }

// Unknown returns an error if none of Node, NodeFence and pods could be read, or if no Node exists and neither a
// NodeFence nor a pod of that name was found.
func (f Facts) Unknown() error {
	switch {
	case !f.Node.OK() && !f.Fence.OK() && !f.Pods.OK():
		return fmt.Errorf("read node %q: %w", f.Name, errOf(f.Node))
	case f.Node.OK() && f.Node.Value == nil && f.Fence.Value == nil && len(f.Pods.Value) == 0:
		return fmt.Errorf("read node %q: %w", f.Name, ErrNoNode)
	}
	return nil
}

type FenceRequest struct {
	Agents []v1alpha1.Agent
	// AllowControlPlane permits a control plane node, and EvenIfReady a node that is Ready.
	AllowControlPlane, EvenIfReady bool
}

// CheckFence is a pure function that returns the effect of a fence of the node, or an error if it should not be
// created.
func CheckFence(f Facts, r FenceRequest) (p Plan, err error) {
	if err := f.known(); err != nil {
		return p, err
	}
	switch fence, node := f.Fence.Value, f.Node.Value; {
	case f.active() != nil:
		return p, fmt.Errorf("%w: %s", ErrFenced, explain.FenceWords(fence, f.Now))
	case node == nil:
		return p, ErrNoNode
	case controlPlane(node) && !r.AllowControlPlane:
		return p, ErrControlPlane
	case explain.IsReady(node) && !r.EvenIfReady:
		return p, ErrReady
	case fence != nil:
		p.Replaces = fence.UID
		p.effect("The previous NodeFence, which has ended, is deleted.")
	}
	for i := range r.Agents {
		p.agentEffect(f, r.Agents[:i], &r.Agents[i])
	}
	if controlPlane(f.Node.Value) {
		p.cost("The node is a control-plane node: without it, etcd may lose its quorum, and the API server with it.")
	}
	f.addRuns(&p)
	f.addEnds(&p, r.Agents)
	return p, nil
}

// agentEffect adds the work of an agent and the effect of its proof.
func (p *Plan) agentEffect(f Facts, before []v1alpha1.Agent, agent *v1alpha1.Agent) {
	when := "first"
	switch n := len(before); {
	case n > 0 && before[n-1].Covers == v1alpha1.CoversVolumes:
		when = "as well"
	case n > 0:
		when = "if none before it has a proof"
	}
	text := fmt.Sprintf("Agent %s is tried %s (%s, for %s at most). ", agent.Name, when, how(agent),
		cmp.Or(agent.Timeout.Duration, defaultTimeout))
	switch agent.Covers {
	case v1alpha1.CoversUntilUnfenced:
		text += "Its proof releases all pods of the node: it gets the taint node.kubernetes.io/out-of-service."
	case v1alpha1.CoversReboot:
		text += fmt.Sprintf("Its proof releases the pods that are terminating before it begins: %d now.", f.count(isHeld))
	case v1alpha1.CoversVolumes:
		driver := ""
		if agent.NetworkFence != nil {
			driver = " of driver " + agent.NetworkFence.Driver
		}
		text += "Its proof releases no pod. It frees the locks of the node's volumes" + driver + ", but Kubernetes " +
			"detaches none of them while its pod is reported as running."
	}
	p.effect("%s", text)
}

// defaultTimeout is the default of an agent's timeout (pkg/apis/fencing/v1alpha1).
const defaultTimeout = 5 * time.Minute

func (f Facts) addRuns(p *Plan) {
	if explain.IsReady(f.Node.Value) {
		p.cost("The node is Ready: its processes run.")
	}
	if lease := f.Lease.Value; lease != nil && f.Now.Sub(renewed(lease)) < fencing.SilentAfter {
		p.cost("The kubelet has renewed its Lease in the last %s: the node runs, and it reaches the API server.",
			fencing.SilentAfter)
	}
}

// addEnds adds the processes that the agents end.
func (f Facts) addEnds(p *Plan, all []v1alpha1.Agent) {
	if !f.Pods.OK() {
		p.cost("Which pods run on the node could not be read.")
		return
	}
	agents := explain.Filter(all, func(a v1alpha1.Agent) bool { return a.Manual == nil })
	kills := slices.ContainsFunc(agents, func(a v1alpha1.Agent) bool { return a.Covers != v1alpha1.CoversVolumes })
	running := f.count(func(p explain.Pod) bool { return !p.Final && !p.Terminating })
	if kills && running > 0 {
		p.cost("The agents end all processes on the node, also the processes of %s not being deleted.",
			plural.Count(running, "pod"))
	}
	if len(agents) > 0 {
		p.cost("The report of an agent is not verified: if it reports a running node as fenced, two writers reach one " +
			"volume, which destroys data.")
	}
}

// CheckConfirm is a pure function that returns the effect of a person's confirmation that no process on the node
// writes, or an error if it should not be given.
func CheckConfirm(f Facts, because string, evenIfReady bool) (p Plan, err error) {
	if err := f.known(); err != nil {
		return p, err
	}
	fence := f.active()
	if fence == nil {
		return p, ErrNotFenced
	}
	engine := fencing.FenceOf(fence)
	switch {
	case engine.Ending():
		return p, fmt.Errorf("%w: it proves nothing any more", ErrEnding)
	case fence.Spec.Confirmation != because, !engine.OwnWord():
	case !engine.Confirmed():
		return p, errors.New("this was confirmed before, and the node has shown since that it runs: find out why, and " +
			"confirm with other words")
	default:
		return p, fmt.Errorf("%w: this was confirmed before", ErrDone)
	}
	switch {
	case engine.OfVolumes():
		return p, fmt.Errorf("%w: kubectl reclaim unfence %s, then kubectl reclaim fence %s --manual --reason=TEXT, and "+
			"confirm that", ErrVolumes, f.Name, f.Name)
	case explain.IsReady(f.Node.Value) && !evenIfReady:
		return p, ErrReady
	}
	p.effect("You say that no process on node %s writes any more, and none does until its fence ends.", f.Name)
	if last := lastAttempt(fence.Status); last != nil && last.EndedAt == nil && !manual(fence, last) {
		p.effect("Agent %s is stopped, because its proof is not needed any more.", last.Agent)
	}
	p.effect("The node gets the taint node.kubernetes.io/out-of-service once it is NotReady: its pods are deleted, and " +
		"its volumes are detached.")
	f.addRuns(&p)
	f.addReleased(&p)
	p.cost("Your confirmation is not verified. If the processes run, they write beside their replacements, which " +
		"destroys data.")
	return p, nil
}

func manual(fence *v1alpha1.NodeFence, a *v1alpha1.Attempt) bool {
	agent := agentOf(fence.Spec, a.Agent)
	return agent == nil || agent.Manual != nil
}

// addReleased adds the pods with claims that are released, so that replacements get their claims.
func (f Facts) addReleased(p *Plan) {
	if !f.Pods.OK() {
		p.cost("Which pods with claims are on the node could not be read.")
		return
	}
	n := 0
	for _, row := range f.rows() {
		if n++; n > maxRows {
			continue
		}
		text := fmt.Sprintf("Pod %s/%s is deleted or released", row.Namespace, row.Name)
		if len(row.Claims) > 0 {
			text += ", and a replacement can write to its claims: " + strings.Join(row.Claims, ", ")
		}
		p.cost("%s.", text)
	}
	if n > maxRows {
		p.cost("So are %d more pods with claims.", n-maxRows)
	}
}

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
		planWhenReleased(&p, fence)
	default:
		f.planEnd(&p, fence)
		switch undoes := fencing.FenceOf(fence).Undoes(); {
		case len(undoes) == 0:
		case to == v1alpha1.UnfenceAbandon:
			p.cost("volume-guard does not undo the work of %s: the node, or a later one with its address, may stay off or cut "+
				"off until you undo it.",
				agentNames(undoes))
		default:
			p.effect("The fence is undone by %s, also where an attempt had no proof.", agentNames(undoes))
		}
	}
	return p, nil
}

// planWhenReleased adds the effect of undoing the fence once no pod or volume of before remains.
func planWhenReleased(p *Plan, fence *v1alpha1.NodeFence) {
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
	switch left := f.remains(); {
	case !left.OK():
		p.cost("The pods and volumes that remain on the node could not be read.")
	case left.Value.Leaving != fencing.Remains{}:
		r := left.Value.Leaving
		p.cost("On the node %s still %s: they wait for other evidence then.", plural.Verb(r.Pods+r.VolumeAttachments, "is",
			"are"), leaving(r))
	}
	if facts := f.fenceFacts(fence); !facts.Back() {
		p.cost("Nothing shows that the node was rebooted after the proof. If its processes run when it is unfenced, they " +
			"write beside their replacements, which destroys data.")
	}
}

func agentNames(names []string) string {
	return plural.Verb(len(names), "agent ", "agents ") + strings.Join(names, ", ")
}
