// Package nodefence reads NodeFences, for the controllers that accept a fence in force as evidence that processes have
// ended or that a node cannot reach volumes, and that take it for an obstacle to the unmount of volumes.
package nodefence

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Fence is the record of a NodeFence in a watch cache. After a deletion, it is empty except for Node.
type Fence struct {
	Node    string
	InForce bool
	// Covers is the number of agents that have proven a fence of volumes, 0 unless InForce.
	Covers int
	// KeepsVolumes reports that the fence may keep the node from volumes, even if it is not InForce.
	KeepsVolumes bool
	// UID and Attempt identify the proof in force, because a later one covers other pods. They are empty unless InForce.
	UID     types.UID
	Attempt int32
}

// FenceOf returns the record of a NodeFence.
func FenceOf(o *v1alpha1.NodeFence) Fence {
	f := fencing.FenceOf(o)
	shown := fencing.Evidence(f, "")
	out := Fence{Node: o.Name, InForce: shown.InForce, Covers: len(shown.Volumes), KeepsVolumes: f.MayKeepVolumes()}
	if shown.InForce {
		out.UID, out.Attempt = o.UID, o.Status.Proof.Attempt
	}
	return out
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
	return kube.NewCache(fences.REST, client.FenceResource, &v1alpha1.NodeFence{}, kube.RecordAll(FenceOf), handler)
}

// Served reports whether the API server has the kind NodeFence. An error means that this is not known.
func Served(by discovery.ServerResourcesInterface) (bool, error) {
	list, err := by.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find the kind NodeFence: %w", err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == client.FenceResource
	}), nil
}

// None is an empty cache, for programs that do not read NodeFences.
type None struct{}

// Get always returns false, as no fence is known.
func (None) Get(string) (Fence, bool) { return Fence{}, false }

func (None) Each(func(Fence)) {}

// Kind is the kind NodeFence in live reads.
var Kind = kube.Kind{Resource: schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: client.FenceResource},
	Word: "NodeFence"}

// Evidence returns the evidence that a NodeFence gives about a pod of its node.
type Evidence func(pod types.UID) objects.Fence

// Read makes a live read of a node's NodeFence. A missing NodeFence is no error, and is no evidence about any pod.
func Read(ctx context.Context, fences *client.Client, node string) (Evidence, error) {
	f, _, err := kube.Get(ctx, Kind, "", node, fences.Fences.Get, fencing.FenceOf)
	return func(pod types.UID) objects.Fence { return fencing.Evidence(f, pod) }, err
}
