package intree

import (
	"context"
	"fmt"

	"k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func (c *Controller) reconcile(ctx context.Context, name string) controller.Result {
	facts, found := c.observer.observe(name, c.cfg.Clock.Now())
	if !found {
		return controller.Done()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("PV", name))
	s := intree.Begin(facts, c.cfg.rules(), c.cfg.Clock.Now())
	err := c.carryOut(ctx, &s)
	if ctx.Err() != nil {
		return controller.Done()
	}
	switch reason := s.Reason(); {
	case reason == "":
	case s.Decision.Quiet:
		c.recorder.Count(object(s.Subject()), reason)
	default:
		c.recorder.ReportEnd(ctx, object(s.Subject()), &s, detail(s.Facts, reason), err, false)
	}
	c.observer.settle(s.Facts)
	return controller.Retries(c.cfg.Settings).Requeue(s.Requeue(), s.Decision.After)
}

// carryOut makes the calls that a session asks for until its End: see controller.Calls.
func (c *Controller) carryOut(ctx context.Context, s *intree.Session) error {
	calls := calls{cluster: c.cluster}
	return controller.Calls[*intree.Session, intree.Ask, intree.Reply]{
		Purpose: fmt.Sprintf("prepare the deletion of the volume of PV %q", s.Subject().Name),
		Clock:   c.cfg.Clock, Answer: c.observer.answer, Wrote: c.wrote,
		Call: func(ctx context.Context, ask intree.Ask) (intree.Reply, error) {
			if s.Decision.Reason == intree.ReasonTooLateToKeep {
				c.recorder.ReportAside(ctx, object(s.Facts.PV), s.Decision.Reason, "")
			}
			return calls.make(ctx, ask)
		},
	}.CarryOut(ctx, s)
}

// wrote logs and counts a write.
func (c *Controller) wrote(ctx context.Context, _ *intree.Session, ask intree.Ask, why string) {
	klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "on", ask.Name, "reason", why)
	if ask.Action == intree.RemoveFinalizerByUID {
		c.metrics.deleted.Inc()
	}
}

// object returns the subject of a report on a PV.
func object(pv intree.PV) events.Object {
	return events.PV(pv.Name, pv.UID, pv.ResourceVersion, pv.Claim)
}

// detail returns information about a PV that a reason's sentence does not give.
func detail(f intree.Facts, reason intree.Reason) string {
	switch reason {
	case intree.ReasonTerminatingBound:
		return reclaim.UsersOf(f.PV.Name, f.PV.Claim)
	case intree.ReasonClaimNamesPV:
	default:
		return f.Detail(reason)
	}
	return fmt.Sprintf("It is claim %s/%s with UID %s. To bind the claim to the PV: %s. To have the volume deleted, "+
		"delete the claim.",
		f.PV.Claim.Namespace, f.PV.Claim.Name, f.Claim.UID, reclaim.BindCommand(f.PV.Name, f.Claim.UID))
}

// calls makes the calls of one session.
type calls struct {
	cluster
	// object is the PV after the session's last read.
	object *v1.PersistentVolume
}

// make makes a call; the error explains every outcome except Succeeded. An unresponsive server does not block a worker.
func (c *calls) make(ctx context.Context, ask intree.Ask) (reply intree.Reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var o *v1.PersistentVolume
	pv := intree.PV{Name: ask.Name, UID: ask.UID, ResourceVersion: ask.ResourceVersion}
	switch ask.Call {
	case intree.GetPV:
		o, err = c.readPV(ctx, ask.Name)
		if reply.Found = o != nil; ask.Action == intree.ReadPV {
			c.object = o
		}
	case intree.GetClaim:
		reply.Claim, err = c.readClaim(ctx, ask.Claim)
	case intree.ListAttachments:
		reply.Attachments, err = c.countAttachments(ctx, ask.PVs)
	case intree.CreatePV:
		o, err = c.createPV(ctx, intree.NewTwin(c.object))
	case intree.PatchFinalizers:
		o, err = c.patchFinalizers(ctx, pv, ask.Add, ask.Remove)
	case intree.PatchPolicy:
		o, err = c.setPolicy(ctx, pv, policyOf(ask))
	case intree.DeletePV:
		err = c.deletePV(ctx, pv)
	case intree.NoCall:
	}
	if o != nil {
		reply.PV = intree.Of(o)
	}
	reply.Outcome = controller.OutcomeOf(err)
	return reply, err
}

func policyOf(ask intree.Ask) v1.PersistentVolumeReclaimPolicy {
	if ask.Policy == volume.PolicyDelete {
		return v1.PersistentVolumeReclaimDelete
	}
	return v1.PersistentVolumeReclaimRetain
}
