package fencing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// reconcilePolicy works on one policy. A single worker calls it, because the limits of each policy count the fences of
// all.
func (c *Controller) reconcilePolicy(ctx context.Context, name string) controller.Result {
	p, found := c.observer.policies.Get(name)
	if !found || p.DeletionTimestamp != nil {
		return controller.Done()
	}
	_, known := c.view.clear(c.cfg.Clock.Now())
	unread := c.unread()
	if !known && unread == nil && c.observer.looksForSilence() {
		return controller.Done() // the next list of Leases decides
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("FencePolicy", name))
	err := c.carryOutPolicy(ctx, p)
	failure := controller.FailureOf(ctx, err)
	switch {
	case failure == controller.Retryable, failure == controller.Lasting:
		c.policyReports.ReportFailure(ctx, policyObject(p), failedStep(err), err, false)
	case ctx.Err() != nil:
	case unread != nil: // the next list of Leases is the next try
		c.policyReports.ReportFailure(ctx, policyObject(p), failedStep(unread), unread, false)
	case err == nil:
		c.policyReports.Forget(p.UID)
	}
	if now, found := c.observer.policies.Get(name); !found || now.UID != p.UID { // deleted and forgotten meanwhile
		c.forgetPolicy(p.UID)
	}
	return failure.Result(controller.Retries(c.cfg.Settings))
}

// failedStep returns the reason of a failed step of a policy.
func failedStep(err error) fencing.Reason { return reasons.Of(err, fencing.ReasonAPIReadFailed) }

// carryOutPolicy fences as many nodes as the policy allows now, and writes its status, which is not Active if a step
// has failed.
func (c *Controller) carryOutPolicy(ctx context.Context, p *v1alpha1.FencePolicy) error {
	f, err := c.policyFacts(ctx, p)
	d, failed, changed := c.fenceNodes(ctx, p, f)
	if changed = cmp.Or(changed, ctx.Err()); changed != nil {
		return changed
	}
	if d.Halted == fencing.ReasonViewLost && !c.observer.anyUnreachable() {
		d.Halted = "" // no Lease is read in this state
	}
	if err = errors.Join(append(failed, err)...); err != nil {
		d.Halted = cmp.Or(d.Halted, failedStep(err))
	}
	c.reportNodes(ctx, p, d)
	return errors.Join(err, reasons.Because(fencing.ReasonAPIWriteFailed, c.writePolicy(ctx, p, d)))
}

// mostFailed bounds the nodes that fail in one pass over a policy, because a missing permission concerns all nodes.
const mostFailed = 10

// nodeError is an error that concerns one node, so that a policy goes on with the next node.
type nodeError struct{ error }

func (e nodeError) Unwrap() error { return e.error }

// aboutNode wraps the error of a call about one node in a nodeError if the API server has answered. After a change
// meanwhile, or without an answer, the pass over the policy ends.
func aboutNode(err error) error {
	if kube.Answer(err) == 0 || errors.Is(err, kube.ErrChanged) || errors.Is(err, kube.ErrGone) {
		return err
	}
	return nodeError{err}
}

// fenceNodes fences nodes until the policy allows no further one, and returns its last decision and the failed steps.
// changed means that the objects of the decision have changed, or that the work was canceled.
func (c *Controller) fenceNodes(ctx context.Context, p *v1alpha1.FencePolicy, f fencing.PolicyFacts) (
	d fencing.PolicyDecision, failed []error, changed error) {
	for {
		d = fencing.DecidePolicy(f, c.cfg.Clock.Now())
		if d.Fence == "" || c.cfg.DryRun {
			return d, failed, nil
		}
		next, err := c.fenceNode(ctx, p, f, d.Fence)
		f = next
		var alone nodeError
		switch failure := controller.FailureOf(ctx, err); {
		case err == nil:
			continue
		case failure == controller.Ended, failure == controller.Transient:
			return d, nil, err
		case errors.As(err, &alone) && len(failed)+1 < mostFailed:
			f.Nodes[indexOf(f, d.Fence)].Skipped = failedStep(err)
		default:
			f.Failed = failedStep(err)
		}
		failed = append(failed, err)
	}
}

// fenceNode creates the NodeFence of a node, if live reads agree with the watches. It returns the facts, updated by
// these reads and the creation.
func (c *Controller) fenceNode(ctx context.Context, p *v1alpha1.FencePolicy, f fencing.PolicyFacts, name string) (
	fencing.PolicyFacts, error) {
	old, err := c.readLive(ctx, p, &f, name)
	if err != nil {
		return f, err
	}
	if fencing.DecidePolicy(f, c.cfg.Clock.Now()).Fence != name {
		return f, nil
	}
	if old != nil {
		// The deletion frees the name and wakes the policy, as does the deletion by another client (ErrGone).
		if err := c.cluster.deleteFence(ctx, fencing.Ask{Node: old.Name, UID: old.UID,
			ResourceVersion: old.ResourceVersion}); err != nil {
			return f, reasons.Because(fencing.ReasonAPIWriteFailed, aboutNode(err))
		}
		return f, fmt.Errorf("the NodeFence of node %q that has ended is deleted first: %w", name, kube.ErrChanged)
	}
	since, _ := c.view.since(name)
	if err := c.cluster.createFence(ctx, fenceFor(p, name, since)); err != nil {
		if kube.Answer(err) < http.StatusInternalServerError { // otherwise it may be created, and count against the limits
			err = aboutNode(err)
		}
		return f, reasons.Because(fencing.ReasonAPIWriteFailed, err)
	}
	c.policyReports.Event(ctx, judged(p, name), fencing.ReasonUnreachable, "Node "+name+".")
	f.Nodes[indexOf(f, name)].Fenced = true
	return f, nil
}

// readLive replaces the state of a policy, of the node and of all fences in f by live reads. It returns the ended
// NodeFence of the node, or nil.
func (c *Controller) readLive(ctx context.Context, p *v1alpha1.FencePolicy, f *fencing.PolicyFacts, name string) (
	*fencing.Fence, error) {
	live, err := c.cluster.readPolicy(ctx, p.Name)
	switch {
	case err != nil:
		return nil, err
	case live == nil, live.UID != p.UID, live.DeletionTimestamp != nil, live.Generation != p.Generation:
		return nil, fmt.Errorf("FencePolicy %q: %w", p.Name, kube.ErrChanged)
	}
	fences, err := c.cluster.listFences(ctx)
	if err != nil {
		return nil, err
	}
	old := countFences(f, fences, name)
	n, err := c.cluster.readLabeledNode(ctx, name)
	if err != nil {
		return nil, aboutNode(err)
	}
	lease, err := c.cluster.readLease(ctx, name)
	if err != nil {
		return nil, aboutNode(err)
	}
	at := &f.Nodes[indexOf(*f, name)]
	_, version := c.view.since(name)
	switch {
	case n == nil:
		at.Unreachable = false
	case lease.ResourceVersion != version:
		c.view.reached(name)
		at.Since = time.Time{}
	default:
		at.Unreachable = n.Unreachable
		at.Selected, err = Selects(p, n)
	}
	return old, err
}

func indexOf(f fencing.PolicyFacts, name string) int {
	return slices.IndexFunc(f.Nodes, func(n fencing.NodeView) bool { return n.Name == name })
}

// fenceFor returns the NodeFence that a policy requests for a node.
func fenceFor(p *v1alpha1.FencePolicy, node string, since time.Time) *v1alpha1.NodeFence {
	return &v1alpha1.NodeFence{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: fenceKind},
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{kube.NoBackup: "true"}},
		Spec: v1alpha1.NodeFenceSpec{
			Reason: "The node is unreachable since " + since.UTC().Format(time.RFC3339) +
				", and pods with claims wait for it (FencePolicy " + p.Name + ").",
			PolicyName: p.Name, Agents: p.Spec.Agents, AllowControlPlane: p.Spec.AllowControlPlane,
			Unfence: v1alpha1.UnfenceWhenReturned,
		},
	}
}

// reportNodes reports the decisions of a policy about unreachable nodes. A node with a NodeFence is reported there
// instead, and the cause of a failed step on the policy.
func (c *Controller) reportNodes(ctx context.Context, p *v1alpha1.FencePolicy, d fencing.PolicyDecision) {
	judgedNow := map[types.UID]bool{}
	for _, j := range d.Nodes {
		about := judged(p, j.Node)
		reason := j.Reason
		switch {
		case reason == fencing.ReasonFenceExists:
			continue
		case reason == fencing.ReasonUnreachable && c.cfg.DryRun:
			reason = fencing.ReasonWouldFence
		}
		judgedNow[about.Key] = true
		if reason == fencing.ReasonAPIReadFailed || reason == fencing.ReasonAPIWriteFailed {
			c.judgements.Count(about, reason)
			continue
		}
		c.judgements.Report(ctx, about, reason, "Node "+j.Node+".")
	}
	c.observer.forgetJudged(p.UID, judgedNow, c.judgements.Forget)
}

// policyObject returns the object of reports on a policy.
func policyObject(p *v1alpha1.FencePolicy) events.Object {
	return events.Object{ObjectReference: v1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: policyKind,
		Name: p.Name, UID: p.UID}}
}

// judged returns the object of reports on a policy and a node.
func judged(p *v1alpha1.FencePolicy, node string) events.Object {
	o := policyObject(p)
	o.Node, o.Key = events.Node(node), p.UID+"/"+types.UID(node)
	return o
}

// reasonActive is the reason of the condition Active while it is True.
const reasonActive = "Active"

// writePolicy writes the status of a policy, unless it is unchanged.
func (c *Controller) writePolicy(ctx context.Context, p *v1alpha1.FencePolicy, d fencing.PolicyDecision) error {
	now := c.cfg.Clock.Now()
	status := c.policyStatus(p, d, now)
	if c.cfg.DryRun || equality.Semantic.DeepEqual(status, p.Status) {
		return nil
	}
	return c.cluster.writePolicyStatus(ctx, p, status)
}

func (c *Controller) policyStatus(p *v1alpha1.FencePolicy, d fencing.PolicyDecision,
	now time.Time) v1alpha1.FencePolicyStatus {
	status := v1alpha1.FencePolicyStatus{ObservedGeneration: p.Generation, Conditions: p.Status.DeepCopy().Conditions}
	active := metav1.Condition{Type: v1alpha1.ConditionActive, Status: metav1.ConditionTrue, Reason: reasonActive,
		Message: "Nodes that are unreachable are fenced.", ObservedGeneration: p.Generation,
		LastTransitionTime: metav1.NewTime(now)}
	halted := d.Halted
	if p.Spec.DryRun {
		halted = fencing.ReasonDryRun
	}
	if halted != "" {
		active.Status, active.Reason, active.Message = metav1.ConditionFalse, string(halted), halted.Sentence()
	}
	meta.SetStatusCondition(&status.Conditions, active)
	c.observer.fences.Each(func(one fencing.Fence) {
		if one.Spec.PolicyName == p.Name && !one.Returned() {
			status.Fences++
		}
	})
	for _, j := range d.Nodes[:min(len(d.Nodes), maxJudged)] {
		status.Nodes = append(status.Nodes, judgement(p, j, d.Fenced, now))
	}
	return status
}

// maxNamed bounds the fenced nodes that are named in the message of a waiting node.
const maxNamed = 10

// judgement returns the status entry for one node, whose Since stays if its reason does. fenced are the nodes whose
// fences count against the limits. The message of a node that waits for them names them, because a fence may last as
// long as a repair.
func judgement(p *v1alpha1.FencePolicy, j fencing.Judgement, fenced []string, now time.Time) v1alpha1.NodeJudgement {
	out := v1alpha1.NodeJudgement{Name: j.Node, Reason: string(j.Reason), Message: j.Reason.Sentence(),
		Since: metav1.NewTime(now)}
	if j.Reason == fencing.ReasonLimitReached || j.Reason == fencing.ReasonZoneLimitReached {
		out.Message += " Fenced: " + strings.Join(fenced[:min(len(fenced), maxNamed)], ", ")
		if more := len(fenced) - maxNamed; more > 0 {
			out.Message += fmt.Sprintf(" and %d more", more)
		}
		out.Message += "."
	}
	for _, before := range p.Status.Nodes {
		if before.Name == j.Node && before.Reason == out.Reason {
			out.Since = before.Since
		}
	}
	return out
}
