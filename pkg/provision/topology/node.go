package topology

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Node is what one node says about where it is.
type Node struct {
	Name string
	// Labels are the Node's; the kubelet puts the driver's segments among them.
	Labels map[string]string
	// Keys are the labels that the driver registered for the node (CSINode,
	// spec.drivers[].topologyKeys). Empty where the driver does not run there, or has not
	// registered yet.
	Keys []string
}

// NodeOf puts together what two objects say about one node for a driver. csiNode is nil where
// there is none. The objects are not kept; their labels and keys are, and are only read.
func NodeOf(node *v1.Node, csiNode *storagev1.CSINode, driver string) Node {
	n := Node{Name: node.Name, Labels: node.Labels}
	if csiNode != nil {
		for _, d := range csiNode.Spec.Drivers {
			if d.Name == driver {
				n.Keys = d.TopologyKeys
			}
		}
	}
	return n
}

// place returns where the node is in terms of the keys. ok is false where a label is missing.
func (n Node) place(keys []string) (place term, ok bool) {
	for _, key := range keys {
		value, found := n.Labels[key]
		if !found {
			return nil, false
		}
		if place, ok = place.with(segment{key, value}); !ok {
			return nil, false
		}
	}
	return place, len(keys) > 0
}

// places returns where the nodes are that have all the labels, each place once.
func places(nodes []Node, keys []string) []term {
	var terms []term
	for _, n := range nodes {
		if place, ok := n.place(keys); ok {
			terms = append(terms, place)
		}
	}
	return sorted(terms)
}

// commonKeys returns the keys that most nodes registered, and among equals the first in
// alphabetical order; nil where none did. Nodes differ while a driver is being replaced by
// another version of itself. external-provisioner takes those of any node, so that two calls
// for one volume may differ.
func commonKeys(nodes []Node) []string {
	type vote struct {
		keys  []string
		count int
	}
	var votes []vote
	for _, n := range nodes {
		if len(n.Keys) == 0 {
			continue
		}
		keys := slices.Sorted(slices.Values(n.Keys))
		i := slices.IndexFunc(votes, func(v vote) bool { return slices.Equal(v.keys, keys) })
		if i < 0 {
			i, votes = len(votes), append(votes, vote{keys: keys})
		}
		votes[i].count++
	}
	if len(votes) == 0 {
		return nil
	}
	return slices.MinFunc(votes, func(a, b vote) int {
		return cmp.Or(cmp.Compare(b.count, a.count), slices.Compare(a.keys, b.keys))
	}).keys
}
