package volume

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Node is the node that a process runs on which answers for the volumes of this node alone
// (--node-deployment of the external-provisioner).
type Node struct {
	// Name is that of the Node object. Required.
	Name string
	// Segments are where the node is in the words of its driver (CSI spec, "NodeGetInfo",
	// accessible_topology). At least one.
	Segments map[string]string
}

// Reach says where a PV's volume is, seen from one node. The zero value is not clear, and nothing is
// done to such a PV.
type Reach uint8

const (
	// ReachUnclear: several nodes reach the volume, or the PV says it in words that are not the
	// driver's.
	ReachUnclear Reach = iota
	// ReachElsewhere: this node does not reach it.
	ReachElsewhere
	// ReachHere: it is in the place of this node, and in no other.
	ReachHere
)

// Reach judges a PV's node affinity by the driver's own segments, as the Node object may lack labels or
// have more. A PV is here only where it names exactly those segments: one that names fewer is reached
// from other nodes too.
func (n Node) Reach(affinity *v1.VolumeNodeAffinity) Reach {
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) == 0 {
		return ReachUnclear
	}
	here, elsewhere := true, true
	for _, term := range affinity.Required.NodeSelectorTerms {
		switch n.reachOf(term) {
		case ReachHere:
			elsewhere = false
		case ReachElsewhere:
			here = false
		default:
			here, elsewhere = false, false
		}
	}
	switch {
	case here:
		return ReachHere
	case elsewhere:
		return ReachElsewhere
	}
	return ReachUnclear
}

// reachOf judges one of several terms, any of which may hold. An empty one selects no node.
func (n Node) reachOf(term v1.NodeSelectorTerm) Reach {
	if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
		return ReachElsewhere
	}
	exact := len(term.MatchFields) == 0
	named := map[string]bool{}
	for _, e := range term.MatchExpressions {
		value, known := n.Segments[e.Key]
		if known && excludes(e, value) {
			return ReachElsewhere
		}
		exact = exact && known && e.Operator == v1.NodeSelectorOpIn && len(e.Values) == 1
		named[e.Key] = true
	}
	for _, f := range term.MatchFields {
		if f.Key == "metadata.name" && excludes(f, n.Name) {
			return ReachElsewhere
		}
	}
	if exact && len(named) == len(n.Segments) {
		return ReachHere
	}
	return ReachUnclear
}

// excludes reports whether a requirement rules out nodes with this value under its key.
func excludes(e v1.NodeSelectorRequirement, value string) bool {
	switch e.Operator {
	case v1.NodeSelectorOpIn:
		return !slices.Contains(e.Values, value)
	case v1.NodeSelectorOpNotIn:
		return slices.Contains(e.Values, value)
	case v1.NodeSelectorOpDoesNotExist:
		return true
	default:
		return false
	}
}

// At is Of as seen from a node, with its Reach; nil is the whole cluster.
func At(node *Node, o *v1.PersistentVolume) PV {
	pv := Of(o)
	if node != nil {
		pv.Reach = node.Reach(o.Spec.NodeAffinity)
	}
	return pv
}
