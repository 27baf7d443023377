package podsafety

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// fenceSeen reports whether the watch shows that a fence of the node is in force.
func (o *observer) fenceSeen(node string) bool {
	f, _ := o.fences.Get(node)
	return f.InForce
}

// sawNode records a change of a node, also in a standby replica, and enqueues everything that it affects.
func (o *observer) sawNode(name string, before, after objects.NodeSeen) {
	o.mu.Lock()
	o.tracker.Storages.SawNode(name, before, after, o.clock.Now())
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

func (a apiServer) readFence(ctx context.Context, node string, pod types.UID) (objects.Fence, error) {
	return nodefence.Read(ctx, a.timeout, a.fences, node, pod)
}
