// Package nodefence reads NodeFences and their Nodes, for the controllers that accept a fence in force as evidence that
// processes have ended or that a node cannot reach volumes.
package nodefence

import (
	"context"
	"fmt"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Fence is the record of a NodeFence in a watch cache.
type Fence struct {
	Node    string
	InForce bool
	// Covers is the number of agents that have proven a fence of volumes.
	Covers int
	// KeepsVolumes reports that the fence may keep the node from volumes.
	KeepsVolumes bool
}

func Record(object runtime.Object, _ bool) (Fence, bool, error) {
	o, ok := object.(*v1alpha1.NodeFence)
	if !ok {
		return Fence{}, false, fmt.Errorf("watch NodeFences: got a %T", object)
	}
	f := fencing.FenceOf(o)
	shown := fencing.Evidence(f, "")
	return Fence{o.Name, shown.InForce, len(shown.Volumes), f.MayKeepVolumes()}, true, nil
}

// Changes handles the events of the watch. It is called with each changed fence, and after a deletion with a fence that
// is not in force.
type Changes func(Fence)

func (c Changes) Added(now Fence) { c(now) }

func (c Changes) Updated(before, now Fence) {
	if before != now {
		c(now)
	}
}

func (c Changes) Deleted(last Fence, _ bool) { c(Fence{Node: last.Node}) }

// NewCache returns a watch cache of all NodeFences, which does not run yet.
func NewCache(fences *client.Client, handler kube.Handler[Fence]) *kube.Cache[Fence] {
	return kube.NewCache(fences.REST, client.FenceResource, &v1alpha1.NodeFence{}, Record, handler)
}

// None is an empty cache, for programs that do not read NodeFences.
type None struct{}

// Get always returns false, as no fence is known.
func (None) Get(string) (Fence, bool) { return Fence{}, false }

func (None) Each(func(Fence)) {}

// Read returns the evidence about a pod from a live read of its node's NodeFence. A missing NodeFence is no error, and
// yields the zero Fence.
func Read(ctx context.Context, fences *client.Client, node string, pod types.UID) (objects.Fence, error) {
	o, err := fences.Fences.Get(ctx, node, metav1.GetOptions{})
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: client.FenceResource}
	switch {
	case kube.Absent(err, resource, node):
		return objects.Fence{}, nil
	case err != nil:
		return objects.Fence{}, fmt.Errorf("read NodeFence %q: %w", node, err)
	}
	return fencing.Evidence(fencing.FenceOf(o), pod), nil
}

// ReadNode returns the facts of a live read of a Node. A missing Node is no error, and yields the zero Node.
func ReadNode(ctx context.Context, nodes corev1.NodesGetter, name string) (objects.Node, error) {
	o, err := nodes.Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, v1.Resource("nodes"), name):
		return objects.Node{}, nil
	case err != nil:
		return objects.Node{}, fmt.Errorf("read node %q: %w", name, err)
	}
	return objects.NodeOf(o), nil
}
