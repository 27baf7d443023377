package intree

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/reclaiming"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/twins"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

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
	return controller.Backoff{First: c.cfg.RetryStart, Max: c.cfg.RetryMax}.Requeue(s.Requeue(), s.Decision.After)
}

// carryOut makes the calls that a session asks for until it has ended: see controller.Calls.
func (c *Controller) carryOut(ctx context.Context, s *twins.Session) error {
	calls := calls{cluster: c.cluster}
	err := controller.Calls[*twins.Session, twins.Ask, twins.Reply]{
		Clock: c.cfg.Clock, Answer: c.observer.answer, Wrote: c.wrote,
		Call: func(ctx context.Context, ask twins.Ask) (twins.Reply, error) {
			if s.Decision.Reason == twins.ReasonTooLateToKeep {
				c.recorder.ReportAside(ctx, object(s.Facts.PV), s.Decision.Reason, "")
			}
			return calls.make(ctx, ask)
		},
	}.CarryOut(ctx, s)
	if s.End == session.TooSlow {
		return fmt.Errorf("prepare the deletion of the volume of PV %q: %w", s.Subject().Name, err)
	}
	return err
}

// wrote logs and counts a write.
func (c *Controller) wrote(ctx context.Context, _ *twins.Session, ask twins.Ask, why string) {
	klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "on", ask.Name, "reason", why)
	if ask.Action == twins.RemoveFinalizerByUID {
		c.metrics.deleted.Inc()
	}
}

// report reports why a session has ended.
func (c *Controller) report(ctx context.Context, s *twins.Session, err error) {
	pv, reason := object(s.Subject()), s.Reason()
	switch {
	case reason == "":
	case s.End == session.Skipped:
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
	reply.Outcome = controller.OutcomeOf(err)
	return reply, err
}

func policyOf(ask twins.Ask) v1.PersistentVolumeReclaimPolicy {
	if ask.Policy == volume.PolicyDelete {
		return v1.PersistentVolumeReclaimDelete
	}
	return v1.PersistentVolumeReclaimRetain
}
