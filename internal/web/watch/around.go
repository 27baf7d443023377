package watch

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
)

// maxAround limits the number of objects of one kind in a graph.
const maxAround = 60

type around struct {
	c       *Cluster
	cluster volumes.ClusterFacts
	more    int
	seen    map[view.Ref]bool
	count   map[view.Kind]int
	// of holds the objects by kind, except for the missing nodes.
	of      map[view.Kind][]view.Related
	missing []view.Related
}

// around returns an object and the objects related to it, as far as the caches hold them.
func (c *Cluster) around(ctx context.Context, subject view.Ref) view.Around {
	read := map[view.Kind]bool{}
	for _, kind := range []view.Kind{view.KindPV, view.KindClaim, view.KindPod, view.KindNode, view.KindAttach,
		view.KindFence} {
		_, err := c.has(view.Ref{Kind: kind})
		read[kind] = err == nil
	}
	a := &around{c: c, seen: map[view.Ref]bool{}, count: map[view.Kind]int{}, of: map[view.Kind][]view.Related{},
		cluster: volumes.ClusterFacts{PVs: c.PVs(ctx), Attachments: c.Attachments(ctx)}.Indexed()}
	switch subject.Kind {
	case view.KindPV:
		a.addPV(subject.Name)
	case view.KindClaim:
		a.addClaim(subject.Namespace, subject.Name)
	case view.KindPod:
		a.addPod(subject.Namespace, subject.Name)
	case view.KindNode:
		a.addNode(subject.Name)
		a.addAllOf(subject.Name)
	case view.KindFence, view.KindVolume, view.KindInFlight, view.KindAttach, view.KindLock:
	}
	a.addAttachments()
	return view.Around{Subject: subject, Read: read, More: a.more, Objects: slices.Concat(a.of[view.KindPV],
		a.of[view.KindClaim], a.of[view.KindNode], a.missing, a.of[view.KindPod], sorted(a.of[view.KindAttach]),
		sorted(a.of[view.KindFence]))}
}

// has reports whether an object of a graph exists, or why that is unknown. The error is that of the whole kind.
func (c *Cluster) has(ref view.Ref) (exists bool, err error) {
	key := strings.TrimPrefix(ref.Namespace+"/"+ref.Name, "/")
	switch ref.Kind {
	case view.KindPV:
		_, exists, err = c.pvs.find(key)
	case view.KindClaim:
		_, exists, err = c.claims.find(key)
	case view.KindPod:
		_, exists, err = c.pods.find(key)
	case view.KindNode:
		_, exists, err = c.nodes.find(key)
	case view.KindAttach:
		_, exists, err = c.attachments.find(key)
	case view.KindFence:
		fence, found, failure := c.fences.find(key)
		return found && !explain.FenceEnded(fence), failure
	case view.KindVolume, view.KindInFlight, view.KindLock:
	}
	return exists, err
}

// gone reports whether an object of a graph is known not to exist.
func (c *Cluster) gone(ref view.Ref) bool {
	exists, err := c.has(ref)
	return err == nil && !exists
}

func sorted(all []view.Related) []view.Related {
	slices.SortFunc(all, func(x, y view.Related) int { return cmp.Compare(x.Name, y.Name) })
	return all
}

// begins reports whether an object of the caches is new in the graph, and has room there. more counts the objects
// without room.
func (a *around) begins(ref view.Ref, exists bool) bool {
	switch {
	case !exists || a.seen[ref]:
		return false
	case a.count[ref.Kind] >= maxAround:
		a.more++
		return false
	}
	a.seen[ref] = true
	a.count[ref.Kind]++
	return true
}

func (a *around) add(o view.Related) { a.of[o.Kind] = append(a.of[o.Kind], o) }

func (a *around) addPV(name string) {
	found, exists, _ := a.c.pvs.find(name)
	if !a.begins(view.Ref{Kind: view.KindPV, Name: name}, exists) {
		return
	}
	a.add(view.OfPV(found.object))
	for _, other := range a.cluster.SiblingsOf(found.PV) {
		a.addPV(other.Name)
	}
	if ref := found.object.Spec.ClaimRef; ref != nil {
		a.addClaim(ref.Namespace, ref.Name)
	}
}

func (a *around) addClaim(namespace, name string) {
	key := namespace + "/" + name
	o, exists, _ := a.c.claims.find(key)
	if !a.begins(view.Ref{Kind: view.KindClaim, Namespace: namespace, Name: name}, exists) {
		return
	}
	a.add(view.OfClaim(o))
	a.addPV(o.Spec.VolumeName)
	for _, user := range a.c.podIndex().Value.ofClaim[key] {
		a.addPod(user.Namespace, user.Name)
	}
}

func (a *around) addPod(namespace, name string) {
	p, exists, _ := a.c.pods.find(namespace + "/" + name)
	if !a.begins(view.Ref{Kind: view.KindPod, Namespace: namespace, Name: name}, exists) {
		return
	}
	a.add(view.OfPod(&p))
	for _, claim := range p.Claims {
		a.addClaim(namespace, claim)
	}
	a.addNode(p.Node)
}

// addNode adds a node with its fence, if it has one that has not ended.
func (a *around) addNode(name string) {
	if !a.begins(view.Ref{Kind: view.KindNode, Name: name}, name != "") {
		return
	}
	switch node, exists, err := a.c.nodes.find(name); {
	case err != nil:
	case !exists:
		a.missing = append(a.missing, view.OfMissingNode(name))
	default:
		a.add(view.OfNode(node))
	}
	if fence, exists, _ := a.c.fences.find(name); exists && !explain.FenceEnded(fence) {
		a.add(view.OfFence(fence))
	}
}

// addAllOf adds the pods of a node, and the PVs attached to it.
func (a *around) addAllOf(node string) {
	onNode := slices.Clone(a.c.podIndex().Value.onNode[node])
	slices.SortFunc(onNode, func(x, y *explain.Pod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, p := range onNode {
		a.addPod(p.Namespace, p.Name)
	}
	for _, attachment := range a.cluster.Attachments.Value {
		if name := attachment.Spec.Source.PersistentVolumeName; name != nil && attachment.Spec.NodeName == node {
			a.addPV(*name)
		}
	}
}

func (a *around) addAttachments() {
	for i := range a.cluster.Attachments.Value {
		o := &a.cluster.Attachments.Value[i]
		pv := o.Spec.Source.PersistentVolumeName
		if a.begins(view.Ref{Kind: view.KindAttach, Name: o.Name},
			pv != nil && a.seen[view.Ref{Kind: view.KindPV, Name: *pv}]) {
			a.add(view.OfAttachment(o))
			a.addNode(o.Spec.NodeName)
		}
	}
}
