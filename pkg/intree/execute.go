package intree

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/reclaiming"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/twins"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// errSlow: every read is too old when the next is answered.
var errSlow = fmt.Errorf("reads take longer than %v, so that each is too old when the next is answered", twins.LiveFor)

// reconcile works on the PV of a name.
func (c *Controller) reconcile(ctx context.Context, name string) controller.Result {
	facts, found := c.observer.observe(name, c.cfg.Clock.Now())
	if !found {
		return controller.Done()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("PV", name))
	s := twins.Begin(facts, c.cfg.rules(), c.cfg.Clock.Now())
	err := c.carryOut(ctx, &s)
	if ctx.Err() != nil {
		return controller.Done()
	}
	c.report(ctx, &s, err)
	return c.requeue(&s)
}

// carryOut makes the calls that a session asks for until it has ended. The error is why it ended with CallFailed or
// TooSlow. The loop of steps is the session's own, not controller.Reconcile: the session is a value that the model
// checker copies between any two calls.
func (c *Controller) carryOut(ctx context.Context, s *twins.Session) error {
	calls := calls{cluster: c.cluster}
	for s.End == twins.NotEnded {
		ask, why := s.Ask(), s.Decision.Reason
		klog.FromContext(ctx).V(5).Info("Decided", "action", ask.Action, "reason", why)
		if why == twins.ReasonTooLateToKeep {
			c.recorder.ReportAside(ctx, object(s.Facts.PV), why, "")
		}
		sent := c.cfg.Clock.Now()
		reply, err := calls.make(ctx, ask)
		c.observer.answer(s, reply, sent, c.cfg.Clock.Now())
		if s.End == twins.CallFailed {
			return err
		}
		if reply.Outcome == twins.Succeeded && !ask.Action.Reads() {
			klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "on", ask.Name, "reason", why)
		}
	}
	switch {
	case s.End == twins.TooSlow:
		return fmt.Errorf("prepare the deletion of the volume of PV %q: %w", s.Subject().Name, errSlow)
	case s.End == twins.Written && s.Decision.Action == twins.RemoveFinalizerByUID:
		c.metrics.deleted.Inc()
	}
	return nil
}

// report reports why a session has ended.
func (c *Controller) report(ctx context.Context, s *twins.Session, err error) {
	pv, reason := object(s.Subject()), s.Reason()
	switch {
	case reason == "":
	case s.End == twins.Skipped:
		c.recorder.ReportEach(ctx, pv, reason, "Would do "+s.Decision.Action.String()+": "+s.Decision.Reason.Sentence())
	case err != nil:
		c.recorder.ReportFailure(ctx, pv, reason, err, false)
	default:
		c.recorder.Report(ctx, pv, reason, detail(s.Facts, reason))
	}
}

// object returns what a report on a PV is about.
func object(pv twins.PV) events.Object {
	var claim v1.ObjectReference
	if pv.Claimed() {
		claim = events.Claim(pv.Claim.Namespace, pv.Claim.Name, pv.Claim.UID)
	}
	return events.PV(pv.Name, pv.UID, pv.ResourceVersion, claim)
}

// detail returns what is known of a PV beyond a reason's sentence.
func detail(f twins.Facts, reason Reason) string {
	if reason != twins.ReasonClaimNamesPV {
		return f.Detail(reason)
	}
	return fmt.Sprintf("It is claim %s/%s with UID %s. To bind the claim to the PV: %s. To have the volume deleted, "+
		"delete the claim.",
		f.PV.Claim.Namespace, f.PV.Claim.Name, f.Claim.UID, reclaiming.BindCommand(f.PV.Name, f.Claim.UID))
}

// requeue returns when there is to be another session.
func (c *Controller) requeue(s *twins.Session) controller.Result {
	switch s.Requeue() {
	case twins.RequeueSoon:
		return controller.Soon()
	case twins.RequeueRetry:
		return controller.Backoff{First: c.cfg.RetryStart, Max: c.cfg.RetryMax}.Retry()
	case twins.RequeueAfter:
		return controller.After(s.Decision.After)
	case twins.RequeueNever:
	}
	return controller.Done()
}

// calls makes the calls of one session.
type calls struct {
	cluster
	// object is the PV as the session has read it last.
	object *v1.PersistentVolume
}

// make makes a call. The error is why its outcome is not Succeeded.
func (c *calls) make(ctx context.Context, ask twins.Ask) (reply twins.Reply, err error) {
	var o *v1.PersistentVolume
	pv := twins.PV{Name: ask.Name, UID: ask.UID, ResourceVersion: ask.ResourceVersion}
	switch ask.Call {
	case twins.GetPV:
		if o, reply.Found, err = c.readPV(ctx, ask.Name); ask.Action == twins.ReadPV {
			c.object = o
		}
	case twins.GetClaim:
		reply, err = c.readClaim(ctx, ask.Claim)
	case twins.ListAttachments:
		reply.Attachments, err = c.countAttachments(ctx, ask.PVs)
	case twins.CreatePV:
		o, err = c.createPV(ctx, twins.NewTwin(c.object))
	case twins.PatchFinalizers:
		o, err = c.patchFinalizers(ctx, pv, ask.Add, ask.Remove)
	case twins.PatchPolicy:
		o, err = c.setPolicy(ctx, pv, policyOf(ask))
	case twins.DeletePV:
		err = c.deletePV(ctx, pv)
	case twins.NoCall:
	}
	if o != nil {
		reply.PV = twins.Of(o)
	}
	reply.Outcome = outcomeOf(err)
	return reply, err
}

func policyOf(ask twins.Ask) v1.PersistentVolumeReclaimPolicy {
	if ask.Policy == volume.PolicyDelete {
		return v1.PersistentVolumeReclaimDelete
	}
	return v1.PersistentVolumeReclaimRetain
}

func outcomeOf(err error) twins.Outcome {
	switch {
	case err == nil:
		return twins.Succeeded
	case errors.Is(err, kube.ErrGone):
		return twins.Gone
	case errors.Is(err, kube.ErrChanged):
		return twins.Conflict
	}
	return twins.Failed
}
