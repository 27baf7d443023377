package objects

import (
	"cmp"
	"slices"
	"time"
	"unique"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
)

const (
	// OwnTaintValue is the value of the taint node.kubernetes.io/out-of-service that this project adds to a node that it
	// has fenced. The evidence is then the fence, not the taint.
	OwnTaintValue = "csi-reclaimer"
	// VolumesFencedTaint is the key of the taint that keeps new pods from a node that a fence keeps from its volumes. Its
	// effect is NoSchedule. A taint with this key and another effect was added by a person, and belongs to this project
	// too, so that it is removed with its own.
	VolumesFencedTaint = "csi-reclaimer.io/volumes-fenced"
	// ControlPlaneLabel marks a Node of the control plane (kubeadm, and most installers).
	ControlPlaneLabel = "node-role.kubernetes.io/control-plane"
)

// Ready is the condition Ready of a node. The zero value is ReadyMissing.
type Ready uint8

const (
	// ReadyMissing means that the node has no condition Ready, as when it was just created.
	ReadyMissing Ready = iota
	// ReadyTrue, ReadyFalse and ReadyUnknown are the statuses of the condition. The node controller sets Unknown after a
	// long silence of the kubelet.
	ReadyTrue
	ReadyFalse
	ReadyUnknown
)

// Node holds the fields of a Node that decisions are made from. The zero value is a Node that does not exist.
type Node struct {
	// Found reports that a Node with this name exists. It need not be the Node that a pod was bound to, because pods
	// survive the deletion and new creation of their Node.
	Found           bool
	ResourceVersion string
	Ready           Ready
	// OutOfService reports the taint node.kubernetes.io/out-of-service, unless it is from this project.
	OutOfService bool
	// OwnTaint reports the taint node.kubernetes.io/out-of-service from this project, VolumesFenced reports
	// VolumesFencedTaint, and OtherEffect reports that taint with another effect. None is evidence without a NodeFence.
	OwnTaint, VolumesFenced, OtherEffect bool
	// ControlPlane reports ControlPlaneLabel.
	ControlPlane bool
	// BootID is status.nodeInfo.bootID.
	BootID  string
	Machine Machine
	// Heartbeat is lastHeartbeatTime of the condition Ready, in seconds since 1970 by the clock of the node, or 0. Each
	// write of its kubelet to the status sets it, and no other client does.
	Heartbeat int64
}

// Machine distinguishes machines that share the name of one node, as far as status.nodeInfo of the Node does. The zero
// value is an unknown machine.
type Machine struct{ MachineID, SystemUUID string }

// IsOther reports whether now is not known to be the same machine as m. It is false if m is the zero value.
func (m Machine) IsOther(now Machine) bool { return m != Machine{} && m != now }

// NodeOf returns the record of a Node.
func NodeOf(o *v1.Node) Node {
	info := &o.Status.NodeInfo
	n := Node{Found: true, ResourceVersion: o.ResourceVersion, BootID: info.BootID,
		Machine: Machine{info.MachineID, info.SystemUUID}}
	_, n.ControlPlane = o.Labels[ControlPlaneLabel]
	for _, c := range o.Status.Conditions {
		if c.Type == v1.NodeReady {
			n.Ready = readyOf(c.Status)
			if !c.LastHeartbeatTime.IsZero() {
				n.Heartbeat = c.LastHeartbeatTime.Unix()
			}
		}
	}
	for _, t := range o.Spec.Taints {
		switch {
		case t.Key == VolumesFencedTaint && t.Effect == v1.TaintEffectNoSchedule:
			n.VolumesFenced = true
		case t.Key == VolumesFencedTaint:
			n.OtherEffect = true
		case IsOwnTaint(t):
			n.OwnTaint = true
		case t.Key == v1.TaintNodeOutOfService:
			n.OutOfService = true
		}
	}
	return n
}

func readyOf(s v1.ConditionStatus) Ready {
	switch s {
	case v1.ConditionTrue:
		return ReadyTrue
	case v1.ConditionFalse:
		return ReadyFalse
	case v1.ConditionUnknown:
		return ReadyUnknown
	}
	return ReadyMissing
}

// IsOwnTaint reports whether a taint is from this project.
func IsOwnTaint(t v1.Taint) bool {
	return t.Key == v1.TaintNodeOutOfService && t.Value == OwnTaintValue || t.Key == VolumesFencedTaint
}

// Tainted reports a taint from this project.
func (n Node) Tainted() bool { return n.OwnTaint || n.VolumesFenced || n.OtherEffect }

// NotReady reports that the condition Ready is False or Unknown.
func (n Node) NotReady() bool { return n.Ready == ReadyFalse || n.Ready == ReadyUnknown }

// MayRun reports whether the Node does not prove the node to be down: it exists, and its condition Ready is neither
// False nor Unknown. A node that is Ready has come back, or its fence proves less than it claims.
func (n Node) MayRun() bool { return n.Found && !n.NotReady() }

// NodeSeen is the state of a node in a watch. The zero value is NodeUnseen.
type NodeSeen uint8

const (
	// NodeUnseen means that the watch has not shown the node yet.
	NodeUnseen NodeSeen = iota
	// NodeReady means that the node is Ready, and not tainted as out of service.
	NodeReady
	// NodeNotReady means that the node is not known to be Ready, and not tainted as out of service.
	NodeNotReady
	// NodeTainted means that the node has the taint node.kubernetes.io/out-of-service, and is not known to be Ready.
	NodeTainted
	// NodeTaintedReady means that the node has the taint, and is Ready.
	NodeTaintedReady
	// NodeAbsent means that the Node does not exist.
	NodeAbsent
)

// Ready reports whether the kubelet of the node is at work.
func (n NodeSeen) Ready() bool { return n == NodeReady || n == NodeTaintedReady }

// Seen returns the state that a watch would show for such a Node.
func (n Node) Seen() NodeSeen {
	switch {
	case !n.Found:
		return NodeAbsent
	case (n.OutOfService || n.OwnTaint) && n.Ready == ReadyTrue:
		return NodeTaintedReady
	case n.OutOfService || n.OwnTaint:
		return NodeTainted
	case n.Ready == ReadyTrue:
		return NodeReady
	}
	return NodeNotReady
}

// WatchedNode is the record of a Node in a watch cache.
type WatchedNode struct {
	Name string
	Seen NodeSeen
	// Unreachable reports that the node controller has not heard from the kubelet for a long time.
	Unreachable bool
	Machine     Machine
	// BootID is status.nodeInfo.bootID.
	BootID string
}

// WatchedNodeOf returns the record of a Node in a watch cache.
func WatchedNodeOf(o *v1.Node) WatchedNode {
	n := NodeOf(o)
	return WatchedNode{o.Name, n.Seen(), n.Ready == ReadyUnknown, n.Machine, n.BootID}
}

// State returns the state of the node, which is NodeAbsent for the zero value.
func (n WatchedNode) State() NodeSeen {
	if n.Name == "" {
		return NodeAbsent
	}
	return n.Seen
}

// LabeledNode is the record of a Node in a watch cache for decisions that select nodes by their labels. It is small,
// because a cluster may have thousands of Nodes with tens of labels each.
type LabeledNode struct {
	Name, Zone string
	// Unreachable reports that the condition Ready is Unknown, and Since is the time of that by the clock of the control
	// plane.
	Unreachable bool
	Since       time.Time
	// Tainted reports a taint from this project, and ControlPlane reports ControlPlaneLabel.
	Tainted, ControlPlane bool
	Labels                NodeLabels
}

// LabeledNodeOf returns the record of a Node, which keeps no reference to o.
func LabeledNodeOf(o *v1.Node) *LabeledNode {
	of := NodeOf(o)
	n := &LabeledNode{Name: o.Name, Zone: unique.Make(o.Labels[v1.LabelTopologyZone]).Value(), Tainted: of.Tainted(),
		ControlPlane: of.ControlPlane}
	for _, c := range o.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionUnknown {
			n.Unreachable, n.Since = true, c.LastTransitionTime.Time
		}
	}
	n.Labels = make(NodeLabels, 0, len(o.Labels))
	for key, value := range o.Labels {
		n.Labels = append(n.Labels, nodeLabel{unique.Make(key).Value(), unique.Make(value).Value()})
	}
	slices.SortFunc(n.Labels, func(a, b nodeLabel) int { return cmp.Compare(a.key, b.key) })
	return n
}

// Same reports whether both records lead to the same decisions.
func (n *LabeledNode) Same(other *LabeledNode) bool {
	return n.Zone == other.Zone && n.Unreachable == other.Unreachable && n.Since.Equal(other.Since) &&
		n.Tainted == other.Tainted && n.ControlPlane == other.ControlPlane && slices.Equal(n.Labels, other.Labels)
}

type nodeLabel struct{ key, value string }

// NodeLabels are the labels of a node, sorted by key, and implement labels.Labels.
type NodeLabels []nodeLabel

// Has implements labels.Labels.
func (l NodeLabels) Has(key string) bool {
	_, found := l.Lookup(key)
	return found
}

// Get implements labels.Labels.
func (l NodeLabels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// Lookup implements labels.Labels. value is "" for a label that the node does not have.
func (l NodeLabels) Lookup(key string) (value string, found bool) {
	for _, one := range l {
		if one.key == key {
			return one.value, true
		}
	}
	return "", false
}

// SeenOf returns the state of a node in a watch cache, NodeUnseen without a name.
func SeenOf(nodes interface {
	Get(name string) (WatchedNode, bool)
}, name string) NodeSeen {
	n, found := nodes.Get(name)
	switch {
	case name == "":
		return NodeUnseen
	case !found:
		return NodeAbsent
	}
	return n.Seen
}

// Lease is the record of the Lease of a node in the namespace kube-node-lease. The zero value is a Lease that does not
// exist.
type Lease struct {
	Found bool
	// ResourceVersion changes with each renewal. The times in the Lease are by the clock of the node, which can be wrong.
	ResourceVersion string
}

// LeaseOf returns the record of a Lease.
func LeaseOf(o *coordinationv1.Lease) Lease { return Lease{true, o.ResourceVersion} }
