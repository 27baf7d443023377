package volume

import (
	"fmt"
	"hash/fnv"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Node is the node of a process that handles only the volumes of its own node (--node-deployment of the
// external-provisioner).
type Node struct {
	// Name is the name of the Node object, which is required.
	Name string
	// Segments is the node's topology as its driver reports it (CSI spec, "NodeGetInfo", accessible_topology), at least
	// one.
	Segments map[string]string
}

// ApartName returns the name of the PersistentVolume for this node's volume if another node's PersistentVolume already
// has the volume's own name.
func ApartName(volume, node string) string {
	hash := fnv.New32a()
	hash.Write([]byte(node)) // never fails (hash.Hash)
	return fmt.Sprintf("%s-apart-%08x", volume, hash.Sum32())
}

// Reach is the location of a PV's volume, seen from one node. The zero value is unclear, and such a PV is left alone.
type Reach uint8

const (
	// ReachUnclear means that several nodes reach the volume, or the PV describes its location in labels other than the
	// driver's.
	ReachUnclear Reach = iota
	// ReachElsewhere means that this node does not reach the volume.
	ReachElsewhere
	// ReachHere means that this node's topology segments reach the volume, and no others do.
	ReachHere
)

// Reach judges a PV's node affinity by the driver's own segments, because the Node object may have fewer or more
// labels. A PV is here only if it names exactly those segments: with fewer, other nodes reach it too.
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

// reachOf judges one of several alternative terms; an empty one selects no node.
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

// excludes reports whether a requirement excludes nodes with this value under its key.
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

// At is Of with the Reach from a node; a nil node is the whole cluster.
func At(node *Node, o *v1.PersistentVolume) PV {
	pv := Of(o)
	if node != nil {
		pv.Reach = node.Reach(o.Spec.NodeAffinity)
	}
	return pv
}

// Excludes reports whether the affinity of a PV excludes the node, as far as PV.Affinity expresses it.
func (n Node) Excludes(pv PV) bool {
	places := pv.Segments()
	return len(places) > 0 && !slices.ContainsFunc(places, func(place map[string]string) bool {
		for key, value := range n.Segments {
			if at, named := place[key]; named && at != value {
				return false
			}
		}
		return true
	})
}
