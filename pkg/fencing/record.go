package fencing

import (
	"cmp"
	"slices"
	"time"
	"unique"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// fence is the cached record of a NodeFence. It keeps spec and status, because NodeFences are few.
type fence struct {
	fencing.Fence
	created time.Time
}

func fenceOf(o *v1alpha1.NodeFence) *fence {
	return &fence{fencing.FenceOf(o), o.CreationTimestamp.Time}
}

// ended reports whether the fence has ended, so that it does not count against limits.
func (f *fence) ended() bool {
	return meta.IsStatusConditionTrue(f.Status.Conditions, v1alpha1.ConditionReturned)
}

// endedByRequest reports whether the fence was ended by request, and not by the return of the node.
func (f *fence) endedByRequest() bool {
	returned := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionReturned)
	return f.ended() && returned.Reason == string(fencing.ReasonEnded)
}

// policy is the cached record of a FencePolicy. It keeps spec and status, because FencePolicies are few.
type policy struct {
	name, version string
	uid           types.UID
	generation    int64
	terminating   bool
	spec          v1alpha1.FencePolicySpec
	status        v1alpha1.FencePolicyStatus
}

func policyOf(o *v1alpha1.FencePolicy) *policy {
	return &policy{name: o.Name, version: o.ResourceVersion, uid: o.UID, generation: o.Generation,
		terminating: o.DeletionTimestamp != nil, spec: o.Spec, status: o.Status}
}

type label struct{ key, value string }

// node is the cached record of a Node, small because a cluster may have thousands of Nodes with tens of labels each.
type node struct {
	name, zone string
	// unreachable reports that the condition Ready is Unknown, and since when, by the clock of the control plane.
	unreachable bool
	since       time.Time
	// tainted reports that the Node has a taint of this project.
	tainted      bool
	controlPlane bool
	labels       nodeLabels
}

// nodeLabels are the labels of a node, sorted by key, and implement labels.Labels.
type nodeLabels []label

// Has implements labels.Labels.
func (l nodeLabels) Has(key string) bool {
	_, found := l.Lookup(key)
	return found
}

// Get implements labels.Labels.
func (l nodeLabels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// Lookup implements labels.Labels.
func (l nodeLabels) Lookup(key string) (value string, found bool) {
	for _, one := range l {
		if one.key == key {
			return one.value, true
		}
	}
	return "", false
}

// wholeNodeOf returns the record of a Node, which keeps no reference to o.
func wholeNodeOf(o *v1.Node) *node {
	of := objects.NodeOf(o)
	n := &node{name: o.Name, zone: unique.Make(o.Labels[v1.LabelTopologyZone]).Value(), tainted: of.Tainted(),
		controlPlane: of.ControlPlane}
	for _, c := range o.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionUnknown {
			n.unreachable, n.since = true, c.LastTransitionTime.Time
		}
	}
	n.labels = make(nodeLabels, 0, len(o.Labels))
	for key, value := range o.Labels {
		n.labels = append(n.labels, label{unique.Make(key).Value(), unique.Make(value).Value()})
	}
	slices.SortFunc(n.labels, func(a, b label) int { return cmp.Compare(a.key, b.key) })
	return n
}

// same reports whether both records lead to the same decisions.
func (n *node) same(other *node) bool {
	return n.zone == other.zone && n.unreachable == other.unreachable && n.since.Equal(other.since) &&
		n.tainted == other.tainted && n.controlPlane == other.controlPlane && slices.Equal(n.labels, other.labels)
}
