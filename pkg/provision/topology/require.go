package topology

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
)

// Errors of Require, which are wrapped with the details.
var (
	// ErrNowhere means that no node has registered both the driver and its labels, so the topology is unknown. It passes
	// once the driver's node part has started on a node.
	ErrNowhere = errors.New("the driver is on no node yet")
	// ErrNode means that the selected node cannot have the volume: the driver does not run there, or the StorageClass does
	// not allow its topology, but another node may have it.
	ErrNode = errors.New("the selected node cannot have the volume")
	// ErrLabels means that the selected node lacks a label that the driver registered. The kubelet sets it a moment after
	// the registration.
	ErrLabels = errors.New("the selected node lacks labels of the driver")
	// ErrClass means that each of the allowedTopologies names a key that the driver does not register on the selected
	// node. The scheduler compares them with all labels of a node, so it would select such nodes again and again.
	ErrClass = errors.New("the StorageClass allows no topology that the driver registers")
	// ErrKeys means that the driver has registered without any key, as far as nodes are known, so no other node is better.
	ErrKeys = errors.New("the driver has registered without topology keys")
)

// Facts are the inputs of a requirement.
type Facts struct {
	// Claim is the claim's name, which decides the spread of volumes.
	Claim string
	// Allowed is the StorageClass's allowedTopologies, where empty means no restriction.
	Allowed []v1.TopologySelectorTerm
	// Selected is the node that the scheduler selected, nil for immediate binding.
	Selected *Node
	// Nodes lists all nodes, in any order. It is required only if NeedsNodes returns true.
	Nodes []Node
	// Strict requests only the topology of the selected node (--strict-topology).
	Strict bool
	// SkipImmediate leaves the topology to the driver for immediate binding, unless the class restricts it
	// (--immediate-topology=false).
	SkipImmediate bool
}

// NeedsNodes reports whether Require has to know all nodes, so that callers can avoid the list.
func (f Facts) NeedsNodes() bool {
	switch {
	case f.Selected != nil && f.Strict:
		return false
	case len(f.Allowed) > 0:
		return false
	}
	return f.Selected != nil || !f.SkipImmediate
}

// Require returns the topology requirement of CreateVolume, nil for none. The volume must be accessible from one of the
// requisite terms, and the driver tries the preferred terms first.
//
//	selected node  Strict  allowed  requisite            preferred first
//	no             -       no       the nodes' terms     by the claim's name
//	no             -       yes      the allowed terms    by the claim's name
//	yes            no      no       the nodes' terms     the selected node's term
//	yes            no      yes      the allowed terms    the selected node's term
//	yes            yes     any      the node's term      the same
//
// The selected node's term has all keys that the driver registered there, even if the class names fewer: the pod runs
// on this node and nowhere else. It takes the place of the class' terms that it lies within, so that no more topology
// is allowed than the class allows, and a driver that takes several preferred terms gets different places.
//
// An error wraps ErrNowhere, ErrNode, ErrLabels, ErrClass or ErrKeys. If allowedTopologies of a class select no
// topology at all, Require ignores them like external-provisioner.
func Require(f Facts) (*csi.TopologyRequirement, error) {
	if f.Selected == nil {
		return f.immediate()
	}
	here, err := f.here()
	if err != nil {
		return nil, err
	}
	limits := allowed(f.Allowed)
	holds := func(t term) bool { return t.holds(here) }
	switch {
	case len(limits) > 0 && !slices.ContainsFunc(limits, here.has):
		return nil, fmt.Errorf("%w: it allows %v, and on node %q the driver registers %v", ErrClass, limits,
			f.Selected.Name, f.Selected.Keys)
	case len(limits) > 0 && !slices.ContainsFunc(limits, holds):
		return nil, fmt.Errorf("%w: node %q is at %v, which the StorageClass does not allow", ErrNode, f.Selected.Name, here)
	case f.Strict:
		return requirement([]term{here}, 0), nil
	case len(limits) > 0:
		return preferring(append(slices.DeleteFunc(limits, holds), here), here), nil
	case len(f.Allowed) > 0:
		return nil, nil
	}
	// A volume may span segments, so the driver gets all of them. The selected node's term is included even if the list of
	// nodes is stale.
	return preferring(append(places(f.Nodes, f.Selected.Keys), here), here), nil
}

func (f Facts) immediate() (*csi.TopologyRequirement, error) {
	terms := allowed(f.Allowed)
	switch {
	case len(terms) > 0:
	case f.SkipImmediate || len(f.Allowed) > 0:
		return nil, nil
	default:
		sets := keySets(f.Nodes)
		if terms = placesBy(f.Nodes, sets); len(terms) == 0 {
			if !f.anyKeys() && slices.ContainsFunc(f.Nodes, func(n Node) bool { return n.Registered }) {
				return nil, ErrKeys
			}
			return nil, fmt.Errorf("%w: of %d nodes none has registered it with all of its labels %v", ErrNowhere,
				len(f.Nodes), sets)
		}
	}
	return requirement(terms, spread(f.Claim, len(terms))), nil
}

// here returns the term of the selected node.
func (f Facts) here() (term, error) {
	if len(f.Selected.Keys) == 0 {
		if f.Selected.Registered && !f.anyKeys() {
			return nil, fmt.Errorf("%w: on node %q", ErrKeys, f.Selected.Name)
		}
		// Upstream waits here, and a node that never gets the driver then keeps the pod forever (external-provisioner#544,
		// hetznercloud/csi-driver#399).
		return nil, fmt.Errorf("%w: the driver has not registered on node %q", ErrNode, f.Selected.Name)
	}
	here, ok := f.Selected.place(f.Selected.Keys)
	if !ok {
		return nil, fmt.Errorf("%w: node %q needs %v", ErrLabels, f.Selected.Name, f.Selected.Keys)
	}
	return here, nil
}

// anyKeys reports whether the driver has registered with keys on any of the nodes.
func (f Facts) anyKeys() bool {
	return slices.ContainsFunc(f.Nodes, func(n Node) bool { return len(n.Keys) > 0 })
}

// preferring returns the requirement for one of the terms, which include the preferred one.
func preferring(terms []term, first term) *csi.TopologyRequirement {
	terms = sorted(terms)
	return requirement(terms, slices.IndexFunc(terms, func(t term) bool { return slices.Equal(t, first) }))
}

func requirement(requisite []term, first int) *csi.TopologyRequirement {
	return &csi.TopologyRequirement{Requisite: toCSI(requisite), Preferred: toCSI(from(requisite, first))}
}

// Affinity returns the node affinity of a volume from the driver's accessible_topology, nil for all nodes. Segments are
// in alphabetical order, and a topology without segments is left out. If all topologies are empty, the volume is not
// restricted, because the API server refuses an affinity without terms.
func Affinity(accessible []*csi.Topology) *v1.VolumeNodeAffinity {
	var terms []v1.NodeSelectorTerm
	for _, topology := range accessible {
		segments := topology.GetSegments()
		if len(segments) == 0 {
			continue
		}
		var expressions []v1.NodeSelectorRequirement
		for _, key := range slices.Sorted(maps.Keys(segments)) {
			expressions = append(expressions, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn,
				Values: []string{segments[key]}})
		}
		terms = append(terms, v1.NodeSelectorTerm{MatchExpressions: expressions})
	}
	if len(terms) == 0 {
		return nil
	}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: terms}}
}

// allowed returns the terms of a StorageClass's allowedTopologies. A selector term allows several values for each key.
// CSI has no such choice, so every combination becomes a term of its own: zone in (a, b) and rack in (1, 2) are a1, a2,
// b1 and b2.
//
// A combination with two values for one key is contradictory and left out.
func allowed(selectors []v1.TopologySelectorTerm) []term {
	var all []term
	for _, selector := range selectors {
		if len(selector.MatchLabelExpressions) == 0 {
			continue // selects nothing (core/v1, TopologySelectorTerm)
		}
		combinations := []term{nil}
		for _, expression := range selector.MatchLabelExpressions {
			var longer []term
			for _, t := range combinations {
				for _, value := range expression.Values {
					if next, ok := t.with(segment{expression.Key, value}); ok {
						longer = append(longer, next)
					}
				}
			}
			combinations = longer
		}
		all = append(all, combinations...)
	}
	return sorted(all)
}

// spread returns the index, below n, of the term that a claim with this name prefers while no node is selected. Claims
// of one StatefulSet rotate: their names end with -<set>-<ordinal>, so the ordinal is added to a hash of the set's
// name, which is the same for all claims of one pod. Every other name that ends with a number rotates as well; the rest
// is distributed by hash.
//
// The numbers equal the results of Kubernetes' getPVCNameHashAndIndexOffset (pkg/volume/util), which has spread volumes
// so far. A set that grows after a change of the provisioner stays balanced.
func spread(claim string, n int) int {
	base, ordinal := claim, uint32(0)
	if i := strings.LastIndexByte(claim, '-'); i >= 0 {
		if number, err := strconv.ParseUint(claim[i+1:], 10, 32); err == nil {
			ordinal = uint32(number)
			base = claim[:i]
			base = base[strings.LastIndexByte(base, '-')+1:]
		}
	}
	h := fnv.New32()
	h.Write([]byte(base)) // never fails (hash.Hash)
	return int((h.Sum32() + ordinal) % uint32(n))
}
