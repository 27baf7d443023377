package topology

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Node is what one node says about where it is.
type Node struct {
	Name string
	// Labels are the Node's; the kubelet puts the driver's segments among them.
	Labels map[string]string
	// Registered: the driver has registered on the node (CSINode, spec.drivers).
	Registered bool
	// Keys are the labels that it registered there (spec.drivers[].topologyKeys). Empty where it
	// has not, and where it knows of no places.
	Keys []string
}

// NodeOf puts together what two objects say about one node for a driver. csiNode is nil where
// there is none. The objects are not kept; their labels and keys are, and are only read.
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

// NodeAt returns a node whose segments the driver itself has reported, in NodeGetInfo.
func NodeAt(name string, segments map[string]string) Node {
	return Node{Name: name, Labels: segments, Registered: true, Keys: slices.Sorted(maps.Keys(segments))}
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

// Segments returns the places where the driver is, each once and in order: those of the nodes on
// which it registered, by the keys that it registered there. A node that lacks one of these labels
// is left out until it has it. A place without segments is everywhere: a node for which the driver
// knows of no places is there.
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

// keySets returns the sets of keys by which places count while no node is selected: the one that most nodes
// registered, and among equals the first in alphabetical order; and each that has all of its keys and more, or some of
// them, because nodes of one driver can know more or less of where they are. Other sets are those of another version of
// the driver, while that is being replaced. It is nil where no node registered one.
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

// keySet returns the keys that the node registered, in order and each once.
func (n Node) keySet() []string { return slices.Compact(slices.Sorted(slices.Values(n.Keys))) }

// contains reports whether a set of keys has all of another.
func contains(keys, others []string) bool {
	return !slices.ContainsFunc(others, func(key string) bool { return !slices.Contains(keys, key) })
}

// placesBy returns where the nodes are, each place once. A node that registered one of the sets is where its labels say
// by that set, and nowhere without them. Any other node, such as one on which the driver does not run yet, is where its
// labels say by each set that no larger one includes.
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
