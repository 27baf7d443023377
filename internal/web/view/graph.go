package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

// GraphOf is a pure function that returns the graph of the objects and of their holds on each other, without edges that
// lack an end. rows returns rows of the tables by ID; a node of the graph has the severity of its row.
func GraphOf(a Around, rows func(id string) (Row, bool)) Graph {
	g := Graph{Nodes: []Node{}, Edges: []Edge{}} // JSON has lists, not null
	known := map[string]bool{}
	add := func(n Node) {
		if known[n.ID] {
			return
		}
		known[n.ID] = true
		if row, has := rows(n.ID); has {
			n.Severity = row.Severity
		}
		if n.Subject = n.Ref == a.Subject; n.Subject && a.More > 0 {
			n.Details = append(slices.Clip(n.Details), fmt.Sprintf("and %d more objects, not shown", a.More))
		}
		g.Nodes = append(g.Nodes, n)
	}
	for i := range a.Objects {
		o := &a.Objects[i]
		node := o.Node
		node.Finalizers = finalizersOf(o.finalizers, o.terminating, a.Finalizers[o.ID])
		add(node)
		if o.volume != nil {
			add(*o.volume)
		}
		g.Edges = append(g.Edges, o.edges...)
	}
	g.Edges = slices.DeleteFunc(g.Edges, func(e Edge) bool { return !known[e.From] || !known[e.To] })
	return g
}

// finalizersOf returns an object's finalizers with their owners. A finalizer that no program removes needs attention
// only if the object is terminating.
func finalizersOf(names []string, terminating bool, explained []explain.Finalizer) (all []NodeFinalizer) {
	for _, name := range names {
		n := NodeFinalizer{Name: name, Severity: SeverityNone}
		for _, f := range explained {
			if f.Name != name {
				continue
			}
			switch {
			case f.Stuck != "":
				n.Text = "no program removes it: " + f.Stuck
				if terminating {
					n.Severity = SeverityAttention
				}
			case f.Owner != "":
				n.Text = strings.TrimSpace(f.Owner + " removes it " + f.When)
			default:
				n.Text = "its owner is unknown"
			}
		}
		all = append(all, n)
	}
	return all
}
