package podsafety

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// mark sets the condition NodeUnreachable on the pods of an unreachable node, and removes it when the node is back. It
// changes nothing while the Node does not exist. Without the option NodeCondition it removes the conditions of an
// earlier process, as no other program would.
func (c *Controller) mark(ctx context.Context, name string) controller.Result {
	n, found := c.observer.nodes.Get(name)
	var err error
	switch {
	case c.cfg.DryRun:
	case !c.cfg.NodeCondition:
		err = c.removeMarks(ctx, name)
	case !found:
	case n.Unreachable:
		err = c.setMarks(ctx, name)
	default:
		err = c.removeMarks(ctx, name)
	}
	return c.failed(ctx, "Set or remove the condition NodeUnreachable of pods", err, "node", name)
}

// setMarks lists the pods of the node, because the cache lacks pods that are not held.
func (c *Controller) setMarks(ctx context.Context, node string) error {
	var pods []*pod
	err := c.cluster.eachPod(ctx, metav1.NamespaceAll, node, func(o *v1.Pod) {
		if p := podOf(o); !p.marked && (p.held || c.observer.modeOf(p.namespace) != podsafety.ModeOff) {
			pods = append(pods, p)
		}
	})
	if err != nil {
		return err
	}
	return c.patchMarks(ctx, pods, v1.PodCondition{
		Type: objects.NodeUnreachable, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.cfg.Clock.Now()),
		Reason:  string(podsafety.ReasonNodeUnreachable),
		Message: fmt.Sprintf("The node controller does not hear of node %s. Processes of the pod may run there.", node),
	}, false)
}

// removeMarks removes the condition from pods in the cache, which holds every marked pod.
func (c *Controller) removeMarks(ctx context.Context, node string) error {
	var pods []*pod
	for _, p := range c.observer.podsOn.In(node) {
		if p.marked {
			pods = append(pods, p)
		}
	}
	return c.patchMarks(ctx, pods, v1.PodCondition{Type: objects.NodeUnreachable}, true)
}

func (c *Controller) patchMarks(ctx context.Context, pods []*pod, condition v1.PodCondition, remove bool) error {
	var errs []error
	for _, p := range pods {
		patch := kube.ConditionPatch{Name: p.name, UID: p.uid, Condition: condition, Remove: remove}
		if err := c.cluster.patchCondition(ctx, p.namespace, patch); !errors.Is(err, kube.ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
