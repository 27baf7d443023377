package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Released is what Release did.
type Released struct {
	// Fences is from how many NodeFences the finalizer was removed, Nodes from how many Nodes the taint.
	Fences, Nodes int
	// Active are those of the NodeFences that had not ended, as "NAME (PHASE)". Nobody ends them any more.
	Active []string
	// Left are NodeFences and Nodes that were not released, as "NodeFence NAME" or "Node NAME".
	Left []string
}

// releaseTries is how often what has changed meanwhile is tried again.
const releaseTries = 5

// Release removes the finalizer of this project from all NodeFences, and its taint from all Nodes. It is the first step
// of uninstalling volume-guard: no Controller may run meanwhile, and it is called instead of Run.
//
// It removes the taint of nodes that are fenced, too. To remove it releases nothing: pods that are not gone yet stay
// until their node returns, and volumes stay attached. To leave it would: with it, Kubernetes deletes the pods and
// detaches the volumes of the node whenever it is not Ready again, whether they run or not, and nobody would remove it.
//
// It deletes no NodeFence, and undoes nothing that agents did. All objects are tried, and the error names those that
// were not released. Where the kinds are not installed, only Nodes are released.
func (c *Controller) Release(ctx context.Context) (Released, error) {
	err := c.Installed(ctx)
	absent := errors.Is(err, ErrNotInstalled)
	if err != nil && !absent {
		return Released{}, err
	}
	return c.release(ctx, absent)
}

// release is Release; absent: the kinds are not installed.
func (c *Controller) release(ctx context.Context, absent bool) (out Released, err error) {
	for try := 1; ; try++ {
		out.Left = nil
		var errs []error
		if !absent {
			errs = append(errs, c.releaseFences(ctx, &out, try == 1))
		}
		errs = append(errs, c.releaseNodes(ctx, &out))
		slices.Sort(out.Left)
		if err := errors.Join(errs...); try == releaseTries || len(out.Left) == 0 {
			if err != nil {
				err = fmt.Errorf("release fences of nodes: %w", err)
			}
			return out, err
		}
	}
}

// releaseFences removes the finalizer from all NodeFences.
func (c *Controller) releaseFences(ctx context.Context, out *Released, first bool) error {
	fences, err := c.policies.listFences(ctx)
	errs := []error{err}
	for _, f := range fences {
		if first && !f.ended() {
			out.Active = append(out.Active, fmt.Sprintf("%s (%s)", f.Name, phaseOf(f)))
		}
		if !f.Finalized {
			continue
		}
		switch err := c.cluster.setFinalizer(ctx, fencing.Ask{Node: f.Name, UID: f.UID}, false); {
		case err == nil:
			out.Fences++
			klog.FromContext(ctx).V(2).Info("Released a NodeFence", "NodeFence", f.Name)
		case errors.Is(err, kube.ErrGone):
		default:
			out.Left = append(out.Left, fenceKind+" "+f.Name)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// releaseNodes removes the taint from all Nodes.
func (c *Controller) releaseNodes(ctx context.Context, out *Released) error {
	var errs []error
	err := c.cluster.eachTainted(ctx, func(name string, n fencing.NodeFacts) {
		switch err := c.cluster.setTaint(ctx, fencing.Ask{Node: name, NodeVersion: n.ResourceVersion}, false); {
		case err == nil:
			out.Nodes++
			klog.FromContext(ctx).V(2).Info("Removed the taint of a Node", "node", name)
		case errors.Is(err, kube.ErrGone):
		default:
			out.Left = append(out.Left, "Node "+name)
			errs = append(errs, err)
		}
	})
	return errors.Join(append(errs, err)...)
}
