package podsafety

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// nodeChanged handles the events of the watch of nodes, also in a standby replica, and enqueues everything that a
// change affects.
func (o *observer) nodeChanged(before, now objects.WatchedNode) {
	if before == now {
		return
	}
	name := cmp.Or(now.Name, before.Name)
	o.mu.Lock()
	if delete(o.unreachable, name); now.Unreachable {
		o.unreachable[name] = true
	}
	o.tracker.Storages.SawNode(name, before, now, o.clock.Now())
	o.mu.Unlock()
	o.wakeNode(name)
}

func (o *observer) wakeNode(name string) {
	if o.marks {
		o.wake.node(name)
	}
	o.wakePods(name)
}

// wakePods enqueues the pods on a node that may need work.
func (o *observer) wakePods(node string) {
	for _, p := range o.podsOn.In(node) {
		if o.due(p) {
			o.wake.pod(p.key())
		}
	}
}

// sawFence records the state of a fence, and enqueues the pods on its node, and thereby the locks of their volumes.
func (o *observer) sawFence(f nodefence.Fence) {
	o.mu.Lock()
	o.tracker.Storages.Saw(f.Node, f.KeepsVolumes, o.clock.Now())
	o.mu.Unlock()
	o.wakePods(f.Node)
}

// fenceSeen reports whether the watch shows that a fence of the node is in force.
func (o *observer) fenceSeen(node string) bool {
	f, _ := o.fences.Get(node)
	return f.InForce
}

// toMark reports whether the pods of a node should have the condition NodeUnreachable: the node controller has not
// heard from it for a long time.
func (o *observer) toMark(name string) bool {
	n, _ := o.nodes.Get(name)
	return o.marks && n.Unreachable
}

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

// startsEvery is the interval at which the order between pods and nodes is brought up to date.
const startsEvery = 10 * time.Second

// forgetList is far more than a watch takes to reach the version of a list.
const forgetList = 2 * time.Minute

// listed is a consistent list of pods: its version, and a time before its request. The zero value is no list.
type listed struct {
	version string
	sent    time.Time
}

// starts records at which time no kubelet could know a held pod, until the pod has started.
func (o *observer) starts(before, now *pod, created bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !now.held:
	case now.all != nil:
		o.tracker.SawStart(*now.all, created)
	case before != nil:
		o.tracker.SawStart(now.facts(), false)
	}
}

// orderStarts keeps it known, until ctx ends, that pods were created after states of nodes. The two watches have no
// common order: resourceVersions of two resources cannot be compared, and a watch may lag.
func (c *Controller) orderStarts(ctx context.Context) {
	var last listed
	controller.Repeat(ctx, c.cfg.Clock, startsEvery, func(ctx context.Context) { last = c.order(ctx, last) })
}

// order lists pods if that may show more, and records the last list once the watch has reached it. It returns the list
// that the watch has not reached.
func (c *Controller) order(ctx context.Context, last listed) listed {
	o := c.observer
	if c.cfg.Clock.Since(last.sent) > forgetList {
		last = listed{} // its version may be of an etcd that was restored since
	}
	if last.version == "" {
		o.mu.Lock()
		lags := o.tracker.Lags()
		o.mu.Unlock()
		if !lags {
			return listed{}
		}
		sent := c.cfg.Clock.Now()
		version, err := c.cluster.podsVersion(ctx)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Nothing shows that new pods were created after states of nodes", "err", err)
			return listed{}
		}
		last = listed{version, sent}
	}
	if !o.podsReached(last.version) {
		return last
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tracker.Complete = last.sent
	return listed{}
}
