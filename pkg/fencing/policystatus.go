package fencing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// reasonActive is the reason of the condition Active while it is True.
const reasonActive = "Active"

// writePolicy writes the status of a policy, unless it is unchanged.
func (c *Controller) writePolicy(ctx context.Context, p *policy, d fencing.PolicyDecision) error {
	now := c.cfg.Clock.Now()
	status := c.policyStatus(p, d, now)
	if c.cfg.DryRun || equality.Semantic.DeepEqual(status, p.status) {
		return nil
	}
	return c.policies.writePolicyStatus(ctx, p, status)
}

func (c *Controller) policyStatus(p *policy, d fencing.PolicyDecision, now time.Time) v1alpha1.FencePolicyStatus {
	status := v1alpha1.FencePolicyStatus{ObservedGeneration: p.generation}
	for _, one := range p.status.Conditions {
		status.Conditions = append(status.Conditions, *one.DeepCopy())
	}
	active := metav1.Condition{Type: v1alpha1.ConditionActive, Status: metav1.ConditionTrue, Reason: reasonActive,
		Message: "Nodes that are unreachable are fenced.", ObservedGeneration: p.generation,
		LastTransitionTime: metav1.NewTime(now)}
	halted := d.Halted
	switch {
	case p.spec.DryRun:
		halted = fencing.ReasonDryRun
	case !c.observer.anyUnreachable():
		halted = "" // no Lease is read in this state
	}
	if halted != "" {
		active.Status, active.Reason, active.Message = metav1.ConditionFalse, string(halted), halted.Sentence()
	}
	meta.SetStatusCondition(&status.Conditions, active)
	c.observer.fences.Each(func(one *fence) {
		if one.Spec.PolicyName == p.name && !one.ended() {
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
func judgement(p *policy, j fencing.Judgement, fenced []string, now time.Time) v1alpha1.NodeJudgement {
	out := v1alpha1.NodeJudgement{Name: j.Node, Reason: string(j.Reason), Message: j.Reason.Sentence(),
		Since: metav1.NewTime(now)}
	if j.Reason == fencing.ReasonLimitReached || j.Reason == fencing.ReasonZoneLimitReached {
		out.Message += " Fenced: " + strings.Join(fenced[:min(len(fenced), maxNamed)], ", ")
		if more := len(fenced) - maxNamed; more > 0 {
			out.Message += fmt.Sprintf(" and %d more", more)
		}
		out.Message += "."
	}
	for _, before := range p.status.Nodes {
		if before.Name == j.Node && before.Reason == out.Reason {
			out.Since = before.Since
		}
	}
	return out
}
