package topology

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Node is one node's topology.
type Node struct {
	Name string
	// Labels are the Node's labels, which include the driver's segments once the kubelet has set them.
	Labels map[string]string
	// Registered means that the driver has registered on the node (CSINode, spec.drivers).
	Registered bool
	// Keys are the label keys that the driver registered there (spec.drivers[].topologyKeys). It is empty if the driver
	// has not registered, or reports no topology.
	Keys []string
}

// NodeOf combines a Node and a CSINode for a driver. csiNode is nil if it does not exist. The result shares labels and
// keys with the objects, and they must not be changed.
func NodeOf(node *v1.Node, csiNode *storagev1.CSINode, driver string) Node {
	n := Node{Name: node.Name, Labels: node.Labels}
	if csiNode != nil {
		for _, d := range csiNode.Spec.Drivers {
			if d.Name == driver {
				n.Registered, n.Keys = true, d.TopologyKeys
			}
		}
	}
	return n
}

// NodeAt returns a node with the segments that the driver reported in NodeGetInfo.
func NodeAt(name string, segments map[string]string) Node {
	return Node{Name: name, Labels: segments, Registered: true, Keys: slices.Sorted(maps.Keys(segments))}
}

// place returns the node's term for the keys. ok is false if a label is missing or keys is empty.
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

// places returns the terms of the nodes that have all the labels, without duplicates.
func places(nodes []Node, keys []string) []term {
	var terms []term
	for _, n := range nodes {
		if place, ok := n.place(keys); ok {
			terms = append(terms, place)
		}
	}
	return sorted(terms)
}

// Segments returns the segments of the driver's nodes, sorted and without duplicates: for each node on which it
// registered, the labels of the keys that it registered there. A node that lacks one of these labels is left out until
// it has the label. A node without keys yields an empty map, which means everywhere.
func Segments(nodes []Node) []map[string]string {
	var terms []term
	for _, n := range nodes {
		place, ok := n.place(n.Keys)
		if n.Registered && (ok || len(n.Keys) == 0) {
			terms = append(terms, place)
		}
	}
	var all []map[string]string
	for _, t := range toCSI(sorted(terms)) {
		all = append(all, t.Segments)
	}
	return all
}

// keySets returns the sets of keys that count while no node is selected. The first is the set that most nodes
// registered, in case of a tie the alphabetically first. The others are its supersets and subsets, because nodes of one
// driver can know more or less of their topology. Unrelated sets belong to another version of the driver that is being
// replaced. The result is nil if no node registered a set.
//
// external-provisioner takes the set of any node, so that two calls for one volume may differ, and nodes with fewer
// keys get no volume (external-provisioner#1589).
func keySets(nodes []Node) [][]string {
	type vote struct {
		keys  []string
		count int
	}
	var votes []vote
	for _, n := range nodes {
		if len(n.Keys) == 0 {
			continue
		}
		keys := n.keySet()
		i := slices.IndexFunc(votes, func(v vote) bool { return slices.Equal(v.keys, keys) })
		if i < 0 {
			i, votes = len(votes), append(votes, vote{keys: keys})
		}
		votes[i].count++
	}
	if len(votes) == 0 {
		return nil
	}
	slices.SortFunc(votes, func(a, b vote) int {
		return cmp.Or(cmp.Compare(b.count, a.count), slices.Compare(a.keys, b.keys))
	})
	var sets [][]string
	for _, v := range votes {
		if most := votes[0].keys; contains(most, v.keys) || contains(v.keys, most) {
			sets = append(sets, v.keys)
		}
	}
	return sets
}

// keySet returns the keys that the node registered, sorted and without duplicates.
func (n Node) keySet() []string { return slices.Compact(slices.Sorted(slices.Values(n.Keys))) }

// contains reports whether keys has all of others.
func contains(keys, others []string) bool {
	return !slices.ContainsFunc(others, func(key string) bool { return !slices.Contains(keys, key) })
}

// placesBy returns the terms of the nodes, without duplicates. A node that registered one of the sets has a term for
// that set, or none if its labels are missing. Any other node, such as one without the driver so far, has a term for
// each set that its labels cover and no larger covered set includes.
func placesBy(nodes []Node, sets [][]string) []term {
	var terms []term
	for _, n := range nodes {
		own := n.keySet()
		if slices.ContainsFunc(sets, func(set []string) bool { return slices.Equal(set, own) }) {
			if place, ok := n.place(own); ok {
				terms = append(terms, place)
			}
			continue
		}
		labelled := slices.DeleteFunc(slices.Clone(sets), func(set []string) bool { _, ok := n.place(set); return !ok })
		for _, set := range labelled {
			larger := func(other []string) bool { return len(other) > len(set) && contains(other, set) }
			if !slices.ContainsFunc(labelled, larger) {
				place, _ := n.place(set)
				terms = append(terms, place)
			}
		}
	}
	return sorted(terms)
}
