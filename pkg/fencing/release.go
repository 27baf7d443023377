package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Released is the result of Release.
type Released struct {
	// Fences counts the NodeFences whose finalizer was removed, and Nodes the Nodes whose taint was removed.
	Fences, Nodes int
	// Active lists the NodeFences that had not ended, as "NAME (PHASE)", and that no controller ends any more.
	Active []string
	// Left lists the NodeFences and Nodes that were not released, as "NodeFence NAME" or "Node NAME".
	Left []string
}

// releaseTries bounds the tries for objects that change concurrently.
const releaseTries = 5

// Release removes the finalizer of this project from all NodeFences, and its taints from all Nodes. It is the first
// step of uninstalling volume-guard and replaces Run: no Controller may run at the same time. It fails with
// Config.DryRun.
//
// The taints of fenced nodes are removed as well, which releases nothing: pods that are left stay until their node
// returns, and volumes stay attached. A remaining taint would do harm, because no controller would remove it: with the
// taint out-of-service, Kubernetes would delete the pods and detach the volumes of the node each time that it is not
// Ready, even under running processes, and with the other one it would never schedule pods there.
//
// Release deletes no NodeFence and undoes no agent's fence. It tries all objects, and the error names the ones that
// were not released. If the kinds are not installed, it releases only Nodes.
func (c *Controller) Release(ctx context.Context) (Released, error) {
	return controller.Release(ctx, "release fences of nodes", c.cfg.DryRun, func(ctx context.Context) (Released, error) {
		err := c.Installed(ctx)
		absent := errors.Is(err, ErrNotInstalled)
		if err != nil && !absent {
			return Released{}, err
		}
		return c.releaseAll(ctx, absent)
	})
}

func (c *Controller) releaseAll(ctx context.Context, absent bool) (out Released, err error) {
	for try := 1; ; try++ {
		out.Left = nil
		var errs []error
		if !absent {
			errs = append(errs, c.releaseFences(ctx, &out, try == 1))
		}
		errs = append(errs, c.releaseNodes(ctx, &out))
		slices.Sort(out.Left)
		if try == releaseTries || len(out.Left) == 0 {
			return out, errors.Join(errs...)
		}
	}
}

func (c *Controller) releaseFences(ctx context.Context, out *Released, first bool) error {
	fences, err := c.cluster.listFences(ctx)
	errs := []error{err}
	for _, f := range fences {
		if first && !f.Returned() {
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

func (c *Controller) releaseNodes(ctx context.Context, out *Released) error {
	var errs []error
	err := c.cluster.eachTainted(ctx, func(name string, n objects.Node) {
		switch err := c.cluster.setTaint(ctx, fencing.Ask{Node: name, NodeVersion: n.ResourceVersion}); {
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
