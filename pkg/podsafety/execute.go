package podsafety

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/podhold"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// errSlow: every read is too old when the next is answered.
var errSlow = fmt.Errorf("reads take longer than %v, so that each is too old when the next is answered",
	podhold.LiveFor)

// reconcile works on the pod of a key.
func (c *Controller) reconcile(ctx context.Context, key string) controller.Result {
	facts, found := c.observer.observe(key)
	if !found {
		return controller.Done()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("pod", key))
	s := c.observer.begin(facts, c.cfg.Clock.Now())
	err := c.carryOut(ctx, &s, c.observer)
	if ctx.Err() != nil {
		return controller.Done()
	}
	c.report(ctx, &s, err)
	if s.Requeue() != podhold.RequeueRetry {
		c.observer.drop(key)
	}
	// A pod that is released at once needs no locks.
	if s.Facts.Pod.Terminating {
		c.locks(key)
	}
	return c.requeue(&s)
}

// answerer has a session take a reply.
type answerer interface {
	answer(s *podhold.Session, reply podhold.Reply, sent, now time.Time)
}

// carryOut makes the calls that a session asks for until it has ended. The error is why it ended with CallFailed or
// TooSlow. The loop of steps is the session's own, not controller.Reconcile: the session is a value that the model
// checker copies between any two calls.
func (c *Controller) carryOut(ctx context.Context, s *podhold.Session, replies answerer) error {
	for s.End == podhold.NotEnded {
		ask, why := s.Ask(), s.Decision.Reason
		klog.FromContext(ctx).V(5).Info("Decided", "action", ask.Action, "reason", why)
		sent := c.cfg.Clock.Now()
		reply, err := c.call(ctx, ask)
		replies.answer(s, reply, sent, c.cfg.Clock.Now())
		if s.End == podhold.CallFailed {
			return err
		}
		if reply.Outcome == podhold.Succeeded && !ask.Action.Reads() {
			klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "reason", why)
			c.wrote(ctx, s, ask.Action, why)
		}
	}
	if s.End == podhold.TooSlow {
		return fmt.Errorf("find evidence for pod %q: %w", s.Facts.Pod.Namespace+"/"+s.Facts.Pod.Name, errSlow)
	}
	return nil
}

// call makes a call. The error is why its outcome is not Succeeded.
func (c *Controller) call(ctx context.Context, ask podhold.Ask) (reply podhold.Reply, err error) {
	switch ask.Call {
	case podhold.GetPod:
		reply.Pod, reply.Found, err = c.cluster.readPod(ctx, ask.Namespace, ask.Name)
	case podhold.GetNode:
		reply.Node, err = c.cluster.readNode(ctx, ask.Node)
	case podhold.GetLease:
		reply.Lease, err = c.cluster.readLease(ctx, ask.Node)
	case podhold.PatchFinalizers:
		err = c.cluster.patchFinalizers(ctx, ask)
	case podhold.DeletePod:
		err = c.cluster.forceDelete(ctx, ask)
	case podhold.GetFence, podhold.NoCall: // nothing says that there is a fence: podhold.Facts.FenceSeen
	}
	reply.Outcome = outcomeOf(err)
	return reply, err
}

func outcomeOf(err error) podhold.Outcome {
	switch {
	case err == nil:
		return podhold.Succeeded
	case errors.Is(err, kube.ErrGone):
		return podhold.Gone
	case errors.Is(err, kube.ErrChanged):
		return podhold.Conflict
	}
	return podhold.Unanswered
}

// wrote counts a write, and reports it where it is no wait that the session ends with.
func (c *Controller) wrote(ctx context.Context, s *podhold.Session, action podhold.Action, why Reason) {
	switch action {
	case podhold.AddFinalizer:
		c.metrics.added.Inc()
	case podhold.ForceDelete:
		c.metrics.forceDeleted.WithLabelValues(string(why)).Inc()
		if why == podhold.ReasonOrphaned {
			c.recorder.Event(ctx, object(s.Facts.Pod), why, s.Facts.Detail(why))
		}
	case podhold.RemoveFinalizer:
		c.metrics.released.WithLabelValues(string(why)).Inc()
	default:
	}
}

// report reports why a session has ended.
func (c *Controller) report(ctx context.Context, s *podhold.Session, err error) {
	pod, reason := object(s.Facts.Pod), s.Reason()
	switch {
	case s.End == podhold.Written:
		// It does not wait for this reason: the pod is released, and nothing is kept of it.
		c.recorder.Event(ctx, pod, reason, s.Facts.Detail(reason))
		c.recorder.Forget(pod.UID)
	case s.End == podhold.PodGone:
		c.recorder.Forget(pod.UID)
	case reason == "":
	case s.End == podhold.Skipped:
		c.recorder.ReportEach(ctx, pod, reason, "Would do "+s.Decision.Action.String()+": "+s.Decision.Reason.Sentence())
	case err != nil:
		c.recorder.ReportFailure(ctx, pod, reason, err, false)
	default:
		c.recorder.Report(ctx, pod, reason, s.Facts.Detail(reason))
	}
}

// object returns what a report on a pod is about.
func object(p podhold.Pod) events.Object {
	return events.Object{ObjectReference: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace,
		Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}}
}

// requeue returns when there is to be another session.
func (c *Controller) requeue(s *podhold.Session) controller.Result {
	switch s.Requeue() {
	case podhold.RequeueSoon:
		return controller.Soon()
	case podhold.RequeueRetry:
		return c.cfg.retries().Retry()
	case podhold.RequeueAfter:
		return controller.After(s.Decision.After)
	case podhold.RequeueNever:
	}
	return controller.Done()
}

// hold offers the pods of a namespace that asks for it the finalizer: those that were there before.
func (c *Controller) hold(ctx context.Context, namespace string) controller.Result {
	if c.observer.modeOf(namespace) != podhold.ModeEnforce {
		return controller.Done()
	}
	err := c.cluster.eachPod(ctx, namespace, "", func(o *v1.Pod) {
		if p := podhold.PodOf(o); !p.Held {
			c.observer.offer(p, cache.NewObjectName(o.Namespace, o.Name).String())
		}
	})
	return c.failed(ctx, "List the pods of a namespace to be held", err, "namespace", namespace)
}

// failed logs an error, and returns when to try again; nil is done.
func (c *Controller) failed(ctx context.Context, what string, err error, about ...any) controller.Result {
	failure := controller.FailureOf(ctx, err)
	if failure == controller.Retryable || failure == controller.Lasting {
		klog.FromContext(ctx).Error(err, what+" failed; retrying", about...)
	}
	return failure.Result(c.cfg.retries())
}
