package provision

import (
	"context"
	"errors"

	"k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/selfselect"
)

// selectionFacts returns the facts about a claim that has no selected node.
func (p *Controller) selectionFacts(claim *v1.PersistentVolumeClaim) selfselect.Facts {
	local := p.cfg.Local
	if local == nil || claim == nil {
		return selfselect.Facts{}
	}
	b := selfselect.Facts{Enabled: local.Immediate, Node: p.at(claim)}
	b.Free = p.ours(claim) && claim.DeletionTimestamp == nil && claim.Spec.VolumeName == ""
	if class := p.classOf(claim); class != nil {
		b.Immediate, b.Allowed = !late(class), selfselect.Allowed(class, local.Node)
	}
	return b
}

// selectSelf handles one claim that binds immediately, and selects this node for it when its turn comes.
func (p *Controller) selectSelf(ctx context.Context, k key) controller.Result {
	claim, now := p.claims.Of(k.namespace, k.name, k.uid), p.cfg.Clock.Now()
	facts := p.selectionFacts(claim)
	if !selfselect.Decide(facts, now).Done {
		if p.ignores(ctx, claim, p.classOf(claim)) {
			return controller.Done()
		}
		facts.Due = p.selections.Due(k.uid, now, p.cfg.Local.BaseDelay, p.cfg.Local.MaxDelay)
	}
	d := selfselect.Decide(facts, now)
	switch {
	case d.Done:
		if facts.Node != provision.NodeHere { // its own turn counts until the claim has its volume
			p.selections.Forget(k.uid)
		}
		return controller.Done()
	case d.Action != provision.SelectNode:
		return controller.After(facts.Due.Sub(now))
	}
	p.selections.Selected(k.uid)
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	switch err := p.cluster.selectNode(ctx, claim, p.cfg.Local.Node.Name); {
	case err == nil:
		klog.FromContext(ctx).V(2).Info("This node makes the volume of a claim that binds immediately", "claim",
			klog.KObj(claim))
	case errors.Is(err, kube.ErrChanged), errors.Is(err, kube.ErrGone):
		// Most likely another node was faster, which the claim's own update shows; otherwise the retry selects the node.
		return p.retries().Retry()
	default:
		klog.FromContext(ctx).Info("A claim that binds immediately was not given this node; it is tried again", "claim",
			klog.KObj(claim), "err", err)
		return p.retries().Retry()
	}
	return controller.Done()
}
