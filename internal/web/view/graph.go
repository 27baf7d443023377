package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

const (
	verbNames    = "names"
	verbBound    = "is bound to"
	verbReserved = "is reserved for"
	verbUses     = "uses"
	verbAttaches = "attaches"
	verbTo       = "to"
	verbRunsOn   = "runs on"
	verbFences   = "fences"
)

// GraphOf is a pure function that returns the graph of the objects and of their holds on each other. rows returns rows
// of the tables by ID; a node of the graph has the severity of its row.
func GraphOf(a Around, rows func(id string) (Row, bool)) Graph {
	g := grapher{subject: a.Subject.ID(), rows: rows, known: map[string]bool{}}
	for _, o := range a.PVs {
		g.pv(o, a.Finalizers)
	}
	for _, o := range a.Claims {
		g.claim(o, a.Finalizers)
	}
	for _, node := range a.Nodes {
		g.node(node)
	}
	for _, name := range a.Gone {
		g.add(Node{Ref: Ref{Kind: KindNode, Name: name}, Label: name, Details: []string{"does not exist"},
			Severity: SeverityAttention, Open: true})
	}
	for i := range a.Pods {
		g.pod(&a.Pods[i], a.Finalizers)
	}
	for i := range a.Attachments {
		g.attachment(&a.Attachments[i])
	}
	for _, fence := range a.Fences {
		ref := Ref{Kind: KindFence, Name: fence.Name}
		g.add(Node{Ref: ref, Label: "Fence of " + fence.Name,
			Details: []string{string(cmp.Or(fence.Status.Phase, "Requested"))}, Severity: SeverityNone})
		g.edge(ref, Ref{Kind: KindNode, Name: fence.Name}, verbFences, false)
	}
	return g.finish(a.More)
}

type grapher struct {
	Graph
	subject string
	rows    func(string) (Row, bool)
	known   map[string]bool
}

// add adds a node, once, with the severity of its row.
func (g *grapher) add(n Node) {
	n.ID = n.Ref.ID()
	if g.known[n.ID] {
		return
	}
	g.known[n.ID] = true
	n.Subject = n.ID == g.subject
	if row, has := g.rows(n.ID); has {
		n.Severity = row.Severity
	}
	g.Nodes = append(g.Nodes, n)
}

func (g *grapher) edge(from, to Ref, label string, holds bool) {
	g.Edges = append(g.Edges, Edge{From: from.ID(), To: to.ID(), Label: label, Holds: holds})
}

// finish drops edges without both ends, and reports the number of objects left out.
func (g *grapher) finish(more int) Graph {
	g.Edges = slices.DeleteFunc(g.Edges, func(e Edge) bool { return !g.known[e.From] || !g.known[e.To] })
	if more > 0 {
		for i := range g.Nodes {
			if g.Nodes[i].Subject {
				g.Nodes[i].Details = append(g.Nodes[i].Details, fmt.Sprintf("and %d more objects, not shown", more))
			}
		}
	}
	if g.Nodes == nil {
		g.Nodes = []Node{}
	}
	if g.Edges == nil {
		g.Edges = []Edge{}
	}
	return g.Graph
}

func (g *grapher) pv(o *v1.PersistentVolume, finalizers map[string][]explain.Finalizer) {
	ref := Ref{Kind: KindPV, Name: o.Name}
	state := phaseOf(o) + ", " + string(o.Spec.PersistentVolumeReclaimPolicy)
	g.add(Node{Ref: ref, Label: o.Name, Details: withTerminating(state, o.DeletionTimestamp != nil),
		Finalizers: finalizersOf(o.Finalizers, o.DeletionTimestamp != nil, finalizers[ref.ID()]),
		Severity:   SeverityNone, Open: true})
	if volume, label, details := volumeOf(o); label != "" {
		g.add(Node{Ref: volume, Label: label, Details: details, Severity: SeverityNone})
		g.edge(ref, volume, verbNames, true)
	}
}

// volumeOf returns the volume that a PV names, with the driver's handle.
func volumeOf(o *v1.PersistentVolume) (ref Ref, label string, details []string) {
	pv := explain.PVOf(o)
	switch owner := pv.Owner(); {
	case pv.Handle != "":
		return Ref{Kind: KindVolume, Name: owner + "/" + pv.Handle}, pv.Handle, []string{owner}
	case owner != "":
		return Ref{Kind: KindVolume, Name: owner + "/" + o.Name}, "volume of " + o.Name, []string{owner}
	}
	return Ref{}, "", nil
}

func withTerminating(state string, terminating bool) []string {
	if terminating {
		return []string{state, "terminating"}
	}
	return []string{state}
}

func (g *grapher) claim(o *v1.PersistentVolumeClaim, finalizers map[string][]explain.Finalizer) {
	ref := Ref{Kind: KindClaim, Namespace: o.Namespace, Name: o.Name}
	g.add(Node{Ref: ref, Label: o.Namespace + "/" + o.Name,
		Details:    withTerminating(string(o.Status.Phase), o.DeletionTimestamp != nil),
		Finalizers: finalizersOf(o.Finalizers, o.DeletionTimestamp != nil, finalizers[ref.ID()]),
		Severity:   SeverityNone, Open: true})
	if name := o.Spec.VolumeName; name != "" {
		g.edge(ref, Ref{Kind: KindPV, Name: name}, verbBound, true)
	}
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

func (g *grapher) node(o *v1.Node) {
	state, severity := "Ready", SeverityNone
	if ready, _ := readyOf(o); !ready {
		state, severity = "NotReady", SeverityAttention
	}
	g.add(Node{Ref: Ref{Kind: KindNode, Name: o.Name}, Label: o.Name, Details: []string{state}, Severity: severity,
		Open: true})
}

func (g *grapher) pod(p *explain.Pod, finalizers map[string][]explain.Finalizer) {
	ref := Ref{Kind: KindPod, Namespace: p.Namespace, Name: p.Name}
	details := withTerminating(string(p.Phase), p.Terminating)
	if p.Held {
		details = append(details, "held by volume-guard")
	}
	g.add(Node{Ref: ref, Label: p.Namespace + "/" + p.Name, Details: details,
		Finalizers: finalizersOf(p.Finalizers, p.Terminating, finalizers[ref.ID()]), Severity: SeverityNone, Open: true})
	for _, claim := range p.Claims {
		g.edge(ref, Ref{Kind: KindClaim, Namespace: p.Namespace, Name: claim}, verbUses, true)
	}
	if p.Node != "" {
		g.edge(ref, Ref{Kind: KindNode, Name: p.Node}, verbRunsOn, false)
	}
}

func (g *grapher) attachment(a *storagev1.VolumeAttachment) {
	ref := Ref{Kind: KindAttach, Name: a.Name}
	g.add(Node{Ref: ref, Label: "Attachment to " + a.Spec.NodeName, Details: []string{attachmentState(a)},
		Severity: SeverityNone})
	if pv := a.Spec.Source.PersistentVolumeName; pv != nil {
		g.edge(ref, Ref{Kind: KindPV, Name: *pv}, verbAttaches, true)
	}
	g.edge(ref, Ref{Kind: KindNode, Name: a.Spec.NodeName}, verbTo, false)
}

func attachmentState(a *storagev1.VolumeAttachment) string {
	switch {
	case a.DeletionTimestamp != nil:
		return "detaching"
	case a.Status.Attached:
		return "attached"
	}
	return "attaching"
}
