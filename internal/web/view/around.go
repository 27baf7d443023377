package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Around holds an object and the objects related to it. Objects that could not be read are missing.
type Around struct {
	Subject Ref
	Objects []Related
	// Read holds the kinds that were read. Objects of other kinds may be missing, and objects that only they lead to.
	Read map[Kind]bool
	// Finalizers holds the explained finalizers of the subject and its PV, by Ref.ID.
	Finalizers map[string][]explain.Finalizer
	// More counts the objects that were left out.
	More int
}

// Related is an object in a graph and a timeline. It has no reference to the object of the API.
type Related struct {
	// Node is the object in the graph, without its finalizers, and volume is the volume that a PV names.
	Node
	volume *Node
	edges  []Edge
	UID    types.UID
	// Version differs if a field changed that an explanation reads.
	Version string

	finalizers  []string
	terminating bool
	// created is nil for kinds whose creation the timeline leaves out.
	created *metav1.Time
	// fields holds the values whose changes the timeline reports, by their names for people. It is nil for an object that
	// does not exist.
	fields map[string]string
}

// fieldFinalizers is the only field with a list, sorted and joined by commas. Its items are reported one by one.
const fieldFinalizers = "finalizers"

const (
	verbNames    = "names"
	verbBound    = "is bound to"
	verbUses     = "uses"
	verbAttaches = "attaches"
	verbTo       = "to"
	verbRunsOn   = "runs on"
	verbFences   = "fences"
)

// Exists reports whether an object has been found.
func (a *Around) Exists(ref Ref) bool {
	return slices.ContainsFunc(a.Objects, func(o Related) bool { return o.Ref == ref && o.fields != nil })
}

// Keep adds objects of an earlier look that are not gone: an unread kind hides them, or they are no longer related.
func (a *Around) Keep(earlier Around, gone func(Ref) bool) {
	found := byID(*a)
	for i := range earlier.Objects {
		if o := &earlier.Objects[i]; o.fields != nil && found[o.ID] == nil && !gone(o.Ref) {
			a.Objects = append(a.Objects, *o)
		}
	}
}

// mayLack reports whether an object of a kind may exist that is missing, because its kind or one that leads to it was
// not read.
func (a *Around) mayLack(kind Kind) bool {
	return slices.ContainsFunc([]Kind{kind, KindPV, KindClaim, KindPod}, func(k Kind) bool { return !a.Read[k] })
}

func graphNode(ref Ref, label string, details ...string) Node {
	return Node{ID: ref.ID(), Ref: ref, Label: label, Details: details, Severity: SeverityNone}
}

// keep adds the finalizers of an object that has a page of its own.
func (r *Related) keep(finalizers []string, terminating bool) {
	r.Open, r.finalizers, r.terminating = true, finalizers, terminating
	r.fields[fieldFinalizers] = strings.Join(slices.Sorted(slices.Values(finalizers)), ",")
	r.fields["terminating"] = yesNo(terminating)
	if terminating {
		r.Details = append(r.Details, "terminating")
	}
}

func (r *Related) edge(to Ref, label string, holds bool) {
	r.edges = append(r.edges, Edge{From: r.ID, To: to.ID(), Label: label, Holds: holds})
}

// OfPV returns a PV with its volume, which the PV names with the driver's handle.
func OfPV(o *v1.PersistentVolume) Related {
	phase, policy, claim := phaseOf(o), string(o.Spec.PersistentVolumeReclaimPolicy), "none"
	if ref := o.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
		if ref.UID != "" {
			claim += " (UID " + string(ref.UID) + ")"
		}
	}
	r := Related{Node: graphNode(Ref{Kind: KindPV, Name: o.Name}, o.Name, phase+", "+policy), UID: o.UID,
		Version: o.ResourceVersion, created: o.CreationTimestamp.DeepCopy(),
		fields: map[string]string{"phase": phase, "reclaim policy": policy, "claim": claim}}
	r.keep(o.Finalizers, o.DeletionTimestamp != nil)
	pv := explain.PVOf(o)
	if owner := pv.Owner(); owner != "" || pv.Handle != "" {
		volume := graphNode(Ref{Kind: KindVolume, Name: owner + "/" + cmp.Or(pv.Handle, o.Name)},
			cmp.Or(pv.Handle, "volume of "+o.Name), owner)
		r.volume = &volume
		r.edge(volume.Ref, verbNames, true)
	}
	return r
}

// OfClaim returns a claim.
func OfClaim(o *v1.PersistentVolumeClaim) Related {
	phase, ref := string(o.Status.Phase), Ref{Kind: KindClaim, Namespace: o.Namespace, Name: o.Name}
	r := Related{Node: graphNode(ref, o.Namespace+"/"+o.Name, phase), UID: o.UID, Version: o.ResourceVersion,
		created: o.CreationTimestamp.DeepCopy(),
		fields:  map[string]string{"phase": phase, "PV": cmp.Or(o.Spec.VolumeName, "none")}}
	r.keep(o.Finalizers, o.DeletionTimestamp != nil)
	if name := o.Spec.VolumeName; name != "" {
		r.edge(Ref{Kind: KindPV, Name: name}, verbBound, true)
	}
	return r
}

// OfPod returns a pod.
func OfPod(p *explain.Pod) Related {
	phase, ref := string(p.Phase), Ref{Kind: KindPod, Namespace: p.Namespace, Name: p.Name}
	r := Related{Node: graphNode(ref, p.Namespace+"/"+p.Name, phase), UID: p.UID, Version: p.ResourceVersion,
		fields: map[string]string{"phase": phase, "node": cmp.Or(p.Node, "none"), "held by volume-guard": yesNo(p.Held)}}
	r.keep(p.Finalizers, p.Terminating)
	if p.Held {
		r.Details = append(r.Details, "held by volume-guard")
	}
	for _, claim := range p.Claims {
		r.edge(Ref{Kind: KindClaim, Namespace: p.Namespace, Name: claim}, verbUses, true)
	}
	if p.Node != "" {
		r.edge(Ref{Kind: KindNode, Name: p.Node}, verbRunsOn, false)
	}
	return r
}

// OfNode returns a node.
func OfNode(o *v1.Node) Related {
	ready, _ := readyOf(o)
	r := Related{Node: graphNode(Ref{Kind: KindNode, Name: o.Name}, o.Name, "Ready"), UID: o.UID,
		Version: fmt.Sprint(o.Spec, o.Status.Conditions), fields: map[string]string{"ready": yesNo(ready)}}
	r.Open = true
	if !ready {
		r.Details, r.Severity = []string{"NotReady"}, SeverityAttention
	}
	return r
}

// OfMissingNode returns a node that does not exist.
func OfMissingNode(name string) Related {
	r := Related{Node: graphNode(Ref{Kind: KindNode, Name: name}, name, "does not exist")}
	r.Open, r.Severity = true, SeverityAttention
	return r
}

// OfAttachment returns a VolumeAttachment.
func OfAttachment(o *storagev1.VolumeAttachment) Related {
	state := "attaching"
	switch {
	case o.DeletionTimestamp != nil:
		state = "detaching"
	case o.Status.Attached:
		state = "attached"
	}
	r := Related{Node: graphNode(Ref{Kind: KindAttach, Name: o.Name}, "Attachment to "+o.Spec.NodeName, state), UID: o.UID,
		Version: o.ResourceVersion, created: o.CreationTimestamp.DeepCopy(), fields: map[string]string{"state": state}}
	if pv := o.Spec.Source.PersistentVolumeName; pv != nil {
		r.edge(Ref{Kind: KindPV, Name: *pv}, verbAttaches, true)
	}
	r.edge(Ref{Kind: KindNode, Name: o.Spec.NodeName}, verbTo, false)
	return r
}

// OfFence returns the fence of a node.
func OfFence(o *v1alpha1.NodeFence) Related {
	phase := string(cmp.Or(o.Status.Phase, "Requested"))
	r := Related{Node: graphNode(Ref{Kind: KindFence, Name: o.Name}, "Fence of "+o.Name, phase), UID: o.UID,
		Version: o.ResourceVersion, fields: map[string]string{"phase": phase}}
	r.edge(Ref{Kind: KindNode, Name: o.Name}, verbFences, false)
	return r
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
