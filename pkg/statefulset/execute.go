package statefulset

import (
	"context"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// reconcile works on the claim of a key.
func (c *Controller) reconcile(ctx context.Context, key string) controller.Result {
	facts, found := c.observer.observe(key)
	if !found {
		return controller.Done()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("claim", key))
	s := c.observer.begin(facts, c.cfg.Clock.Now())
	err := c.carryOut(ctx, &s)
	if ctx.Err() != nil {
		return controller.Done()
	}
	c.claimReports.ReportEnd(ctx, object(s.Facts), &s, s.Facts.Detail(s.Reason()), err, false)
	c.observer.settleClaim(key, s.Facts.Claim)
	return controller.Retries(c.cfg.Settings).Requeue(s.Requeue(), s.Decision.After)
}

// carryOut makes the calls of a session until it has ended; see controller.Calls.
func (c *Controller) carryOut(ctx context.Context, s *statefulset.Session) error {
	return controller.Calls[*statefulset.Session, statefulset.Ask, statefulset.Reply]{
		Purpose: fmt.Sprintf("read the state of claim %q", keyOf(s.Facts.Claim.Namespace, s.Facts.Claim.Name)),
		Clock:   c.cfg.Clock, Call: c.call, Answer: c.observer.answer, Wrote: c.wrote,
	}.CarryOut(ctx, s)
}

// call makes a call, and returns an error for any outcome but Succeeded. An unresponsive server does not hold a worker.
func (c *Controller) call(ctx context.Context, ask statefulset.Ask) (reply statefulset.Reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	switch ask.Action {
	case statefulset.ReadClaim:
		reply.Claim, reply.Found, err = c.cluster.readClaim(ctx, ask.Namespace, ask.Name)
	case statefulset.ReadPod:
		reply.Pod, reply.Found, err = c.cluster.readPod(ctx, ask.Namespace, ask.Name)
	case statefulset.ReadSet:
		reply.Set, reply.Found, err = c.cluster.readSet(ctx, ask.Namespace, ask.Name)
	case statefulset.PatchClaim:
		err = c.cluster.patchClaim(ctx, ask)
	case statefulset.DeleteClaim:
		err = c.cluster.deleteClaim(ctx, ask)
	case statefulset.DeletePod:
		err = c.cluster.deletePod(ctx, ask)
	case statefulset.Wait: // never pending here
	}
	reply.Outcome = controller.OutcomeOf(err)
	return reply, err
}

func (c *Controller) wrote(ctx context.Context, _ *statefulset.Session, ask statefulset.Ask, why string) {
	klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "reason", why)
	c.metrics.wrote(ask.Action)
}

// object returns the object of a report on a claim.
func object(f statefulset.Facts) events.Object {
	return events.Object{ObjectReference: events.Claim(f.Claim.Namespace, f.Claim.Name, f.Claim.UID),
		Set: setReference(f.Set)}
}

func setReference(s statefulset.Set) v1.ObjectReference {
	return events.Set(s.Namespace, s.Name, s.UID)
}

// reconcileSet works on the set of a key.
func (c *Controller) reconcileSet(ctx context.Context, key string) controller.Result {
	facts, found := c.observer.observeSet(key)
	if !found {
		return controller.Done()
	}
	now := c.cfg.Clock.Now()
	facts = c.observer.sight(facts, now)
	defer c.observer.settleSet(key, facts.Set)
	d := statefulset.DecideSet(facts, now)
	about := events.Object{ObjectReference: setReference(facts.Set)}
	switch {
	case d.Action == statefulset.SetWait:
		c.setReports.ReportEach(ctx, about, d.Reason, facts.Detail(d.Reason))
		if d.After > 0 {
			return controller.After(d.After)
		}
		return controller.Done()
	case c.cfg.DryRun:
		c.setReports.ReportEach(ctx, about, statefulset.ReasonDryRun, d.Reason.Would(d.Action))
		return controller.Done()
	}
	return c.wake(ctx, facts, d)
}

// wake carries out Wake or EndWake.
func (c *Controller) wake(ctx context.Context, f statefulset.SetFacts, d statefulset.SetDecision) controller.Result {
	about := events.Object{ObjectReference: setReference(f.Set)}
	var value *string
	if d.Action == statefulset.Wake {
		value = new(string)
		*value = c.cfg.Clock.Now().UTC().Format(time.RFC3339)
	}
	if err := c.cluster.patchWoken(ctx, f.Set, value); err != nil {
		failure := controller.FailureOf(ctx, err)
		if failure != controller.Ended {
			c.setReports.ReportFailure(ctx, about, statefulset.ReasonAPIWriteFailed, err, false)
		}
		return failure.Result(controller.Retries(c.cfg.Settings))
	}
	klog.FromContext(ctx).V(2).Info("Carried out a step", "StatefulSet", klog.KRef(f.Set.Namespace, f.Set.Name), "action",
		d.Action, "reason", d.Reason)
	if d.Action == statefulset.EndWake {
		return controller.Done()
	}
	c.metrics.woken.Inc()
	c.observer.woke(f, c.cfg.Clock.Now())
	c.setReports.Event(ctx, about, d.Reason, "")
	return controller.After(statefulset.Quiet)
}
