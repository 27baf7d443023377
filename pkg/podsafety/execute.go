package podsafety

import (
	"context"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

func (c *Controller) reconcile(ctx context.Context, key string) controller.Result {
	facts, found := c.observer.observe(key)
	if !found {
		return controller.Done()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("pod", key))
	s := c.observer.begin(facts, c.cfg.Clock.Now())
	err := c.carryOut(ctx, &s, c.observer.answer)
	if ctx.Err() != nil {
		return controller.Done()
	}
	c.recorder.ReportEnd(ctx, eventOn(s.Facts.Pod), &s, s.Facts.Detail(s.Reason()), err, false)
	// Without the write of a dry run, the pod stays a candidate with its report.
	again := s.Requeue()
	if again != session.RequeueRetry && again != session.RequeueSoon && s.End != session.Skipped {
		c.observer.drop(key, facts.Pod.UID)
	}
	c.observer.settle(key, facts.Pod)
	// A pod that is released at once needs no locks.
	if s.Facts.Pod.Terminating {
		c.locks(s.Facts.Pod.Node)
	}
	if s.End == session.Skipped && !s.Facts.Pod.Held {
		return controller.Every(candidateEvery) // no event of the pod shows that its namespace asks for no hold any more
	}
	return c.cfg.Retries().Requeue(s.Requeue(), s.Decision.After)
}

// candidateEvery is the interval at which a candidate of a dry run is decided again.
const candidateEvery = 5 * time.Minute

type answerer = func(s *podsafety.Session, reply podsafety.Reply, sent, now time.Time)

// carryOut makes the calls that a session asks for until it ends: see controller.Calls.
func (c *Controller) carryOut(ctx context.Context, s *podsafety.Session, answer answerer) error {
	return controller.Calls[*podsafety.Session, podsafety.Ask, podsafety.Reply]{
		Purpose: fmt.Sprintf("find evidence for pod %q", s.Facts.Pod.Namespace+"/"+s.Facts.Pod.Name),
		Clock:   c.cfg.Clock, Call: c.call, Answer: answer, Wrote: c.wrote,
	}.CarryOut(ctx, s)
}

// call makes the call of an Ask. The error is the cause if the outcome of the reply is not Succeeded.
func (c *Controller) call(ctx context.Context, ask podsafety.Ask) (reply podsafety.Reply, err error) {
	switch ask.Call {
	case podsafety.GetPod:
		reply.Pod, reply.Found, err = c.cluster.readPod(ctx, ask.Namespace, ask.Name)
	case podsafety.GetNode:
		reply.Node, err = c.cluster.readNode(ctx, ask.Node)
	case podsafety.GetLease:
		reply.Lease, err = c.cluster.readLease(ctx, ask.Node)
	case podsafety.PatchFinalizers:
		err = c.cluster.patchFinalizers(ctx, ask)
	case podsafety.DeletePod:
		err = c.cluster.forceDelete(ctx, ask)
	case podsafety.GetFence:
		reply.Fence, err = c.cluster.readFence(ctx, ask.Node, ask.UID)
	case podsafety.NoCall: // a session that waits has ended
	}
	reply.Outcome = controller.OutcomeOf(err)
	return reply, err
}

// wrote logs and counts a write, and reports the deletion of an orphan, because the session does not end with it.
func (c *Controller) wrote(ctx context.Context, s *podsafety.Session, ask podsafety.Ask, why string) {
	klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "reason", why)
	switch ask.Action {
	case podsafety.AddFinalizer:
		c.metrics.added.Inc()
	case podsafety.ForceDelete:
		c.metrics.forceDeleted.WithLabelValues(why).Inc()
		if reason := podsafety.Reason(why); reason == podsafety.ReasonOrphaned {
			c.recorder.Event(ctx, eventOn(s.Facts.Pod), reason, s.Facts.Detail(reason))
		}
	case podsafety.RemoveFinalizer:
		c.metrics.released.WithLabelValues(why).Inc()
	default:
	}
}

// eventOn returns the object of reports on a pod.
func eventOn(p objects.Pod) events.Object {
	return events.Pod(p.Namespace, p.Name, p.UID, p.ResourceVersion)
}

// hold offers the finalizer to the pods that a namespace had before it asked for pod safety, and to their claims.
func (c *Controller) hold(ctx context.Context, namespace string) controller.Result {
	if c.observer.modeOf(namespace) != podsafety.ModeEnforce {
		return controller.Done()
	}
	for _, key := range c.observer.dueClaims(namespace) {
		c.claims.Add(key)
	}
	err := c.cluster.eachPod(ctx, namespace, "", func(o *v1.Pod) {
		if p := objects.PodOf(o); !p.Held {
			c.observer.offer(p, cache.NewObjectName(o.Namespace, o.Name).String())
		}
	})
	return c.failed(ctx, "List the pods of a namespace to be held", err, "namespace", namespace)
}

// failed logs an error and returns when to retry, or returns that the work is done if the error is nil.
func (c *Controller) failed(ctx context.Context, what string, err error, about ...any) controller.Result {
	failure := controller.FailureOf(ctx, err)
	if failure == controller.Retryable || failure == controller.Lasting {
		klog.FromContext(ctx).Error(err, what+" failed; retrying", about...)
	}
	return failure.Result(c.cfg.Retries())
}
