package fencing

import (
	"context"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// runner runs agents, and is implemented by agents.Runner.
type runner interface {
	Read(ctx context.Context, ask fencing.Ask) fencing.RunFacts
	Start(ctx context.Context, ask fencing.Ask) error
	Stop(ctx context.Context, ask fencing.Ask) error
}

func (c *Controller) reconcile(ctx context.Context, name string) controller.Result {
	facts, found := c.observer.observe(name)
	if !found || facts.Fence.UID != "" {
		c.reports.Forget(events.Node(name).UID) // the failed removal of a taint that is gone by now, or has a fence
	}
	if !found {
		return controller.Done()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("NodeFence", name))
	s := c.observer.begin(facts, c.cfg.Clock.Now())
	err := controller.Calls[*fencing.Session, fencing.Ask, fencing.Reply]{
		Purpose: fmt.Sprintf("read the state of NodeFence %q", name),
		Clock:   c.cfg.Clock, Call: c.call, Answer: c.observer.answer, Wrote: c.wrote,
	}.CarryOut(ctx, &s)
	if ctx.Err() != nil {
		return controller.Done()
	}
	about, reason := object(s.Facts.Fence), s.Reason()
	if s.End == session.Written { // which does not end the wait
		c.reports.ReportEach(ctx, about, reason, detail(&s, reason))
	} else {
		c.reports.ReportEnd(ctx, about, &s, detail(&s, reason), err, true)
	}
	c.observer.settle(facts.Fence)
	return c.requeue(&s)
}

// wrote logs and counts a write, and reports the removal of a taint that is left over without a NodeFence.
func (c *Controller) wrote(ctx context.Context, s *fencing.Session, ask fencing.Ask, why string) {
	klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "reason", why)
	if ask.Action == fencing.RemoveTaint && ask.UID == "" {
		c.reports.Event(ctx, object(s.Facts.Fence), fencing.Reason(why), "")
	}
	if ask.Action == fencing.WriteStatus {
		c.metrics.wrote(s.Facts.Fence, c.observer.began(s.Facts.Fence), ask.Status, c.cfg.Clock.Now())
	}
}

// call makes the call of an Ask. The error is the cause if the outcome of the reply is not Succeeded.
func (c *Controller) call(ctx context.Context, ask fencing.Ask) (reply fencing.Reply, err error) {
	switch ask.Action {
	case fencing.ReadFence:
		reply.Fence, reply.Found, err = c.cluster.readFence(ctx, ask.Node)
	case fencing.ReadNode:
		reply.Node, err = c.cluster.readNode(ctx, ask.Node)
	case fencing.ReadLease:
		reply.Lease, err = c.cluster.readLease(ctx, ask.Node)
	case fencing.ListRemaining:
		reply.Remaining, err = c.cluster.listRemaining(ctx, ask)
	case fencing.AddFinalizer, fencing.RemoveFinalizer:
		err = c.cluster.setFinalizer(ctx, ask, ask.Action == fencing.AddFinalizer)
	case fencing.DeleteFence:
		err = c.cluster.deleteFence(ctx, ask)
	case fencing.WriteStatus:
		err = c.cluster.writeStatus(ctx, ask)
	case fencing.AddTaint, fencing.RemoveTaint:
		err = c.cluster.setTaint(ctx, ask)
	case fencing.ReadRun, fencing.StartRun, fencing.StopRun:
		reply.Run, err = c.agent(ctx, ask)
	case fencing.Wait: // a session that waits has ended
	}
	reply.Outcome = controller.OutcomeOf(err)
	return reply, err
}

// agent makes a call to an agent, which is bounded like one call to the API server.
func (c *Controller) agent(ctx context.Context, ask fencing.Ask) (facts fencing.RunFacts, err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	switch ask.Action {
	case fencing.StartRun:
		err = c.runner.Start(ctx, ask)
	case fencing.StopRun:
		err = c.runner.Stop(ctx, ask)
	default:
		facts = c.runner.Read(ctx, ask)
	}
	if err != nil {
		facts.Message = err.Error()
	}
	return facts, err
}

// detail returns the addition to the sentence of a reason: the attempt and agent that it is about.
func detail(s *fencing.Session, reason fencing.Reason) string {
	status := &s.Facts.Fence.Status
	if s.Decision.Status != nil {
		status = s.Decision.Status
	}
	if len(status.Attempts) == 0 {
		return ""
	}
	last := status.Attempts[len(status.Attempts)-1]
	switch reason {
	case fencing.ReasonFencing, fencing.ReasonAgentDeletesPods, fencing.ReasonWaitsForConfirmation,
		fencing.ReasonAgentStopping, fencing.ReasonAgentUnusable:
		return attemptText(last)
	case fencing.ReasonUnfenceFailed:
		return s.Facts.Run.Message
	case fencing.ReasonFenced, fencing.ReasonAgentFailed, fencing.ReasonAgentTimedOut, fencing.ReasonAgentCanceled,
		fencing.ReasonContradicted:
		return attemptText(last) + " " + last.Message
	default:
		return ""
	}
}

func attemptText(a v1alpha1.Attempt) string {
	return fmt.Sprintf("Attempt %d, agent %q.", a.Number, a.Agent)
}

// fenceKind and policyKind are the kinds of this project.
const fenceKind, policyKind = "NodeFence", "FencePolicy"

// object returns the object of reports on a fence, which is the Node if the NodeFence does not exist.
func object(f fencing.Fence) events.Object {
	if f.UID == "" {
		return events.Object{ObjectReference: events.Node(f.Name)}
	}
	return events.Object{
		ObjectReference: v1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: fenceKind, Name: f.Name,
			UID: f.UID},
		Node: events.Node(f.Name),
	}
}

// polledRetryMax bounds the delay after a failed call while an agent or a fenced node is polled. Agents have time
// limits, and a node that has booted waits for the end of its fence.
const polledRetryMax = 10 * time.Second

// requeue returns when to work on the fence again. In the other phases, no agent works and no proof exists.
func (c *Controller) requeue(s *fencing.Session) controller.Result {
	retries := controller.Retries(c.cfg.Settings)
	switch s.Facts.Fence.Status.Phase {
	case v1alpha1.PhaseFencing, v1alpha1.PhaseFenced, v1alpha1.PhaseReleased, v1alpha1.PhaseUnfencing:
		retries.First, retries.Max = min(retries.First, polledRetryMax), min(retries.Max, polledRetryMax)
	default:
	}
	return retries.Requeue(s.Requeue(), s.Decision.After)
}
