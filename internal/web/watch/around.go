package watch

import (
	"cmp"
	"context"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
)

// maxAround limits the number of objects of one kind in a graph.
const maxAround = 60

type around struct {
	c                        *Cluster
	cluster                  volumes.ClusterFacts
	result                   view.Around
	pvs, claims, pods, nodes map[string]bool
}

// around returns an object and the objects related to it, as far as the caches hold them.
func (c *Cluster) around(ctx context.Context, subject view.Ref) view.Around {
	a := &around{c: c, result: view.Around{Subject: subject}, pvs: map[string]bool{}, claims: map[string]bool{},
		pods: map[string]bool{}, nodes: map[string]bool{}}
	a.cluster = volumes.ClusterFacts{PVs: c.PVs(ctx), Attachments: c.Attachments(ctx)}.Indexed()
	switch subject.Kind {
	case view.KindPV:
		a.addPV(subject.Name)
	case view.KindClaim:
		a.addClaim(subject.Namespace, subject.Name)
	case view.KindPod:
		a.addPod(subject.Namespace + "/" + subject.Name)
	case view.KindNode:
		a.addNode(subject.Name)
		a.addAllOf(subject.Name)
	case view.KindFence, view.KindVolume, view.KindInFlight, view.KindAttach, view.KindLock:
	}
	a.addAttachments()
	for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
		a.addFence(name)
	}
	return a.result
}

// room reports whether the graph has room for one more object of a kind, and otherwise counts it in More.
func (a *around) room(have int) bool {
	if have >= maxAround {
		a.result.More++
	}
	return have < maxAround
}

func (a *around) addPV(name string) {
	found, exists, _ := a.c.pvs.find(name)
	if name == "" || a.pvs[name] || !exists || !a.room(len(a.result.PVs)) {
		return
	}
	a.pvs[name] = true
	a.result.PVs = append(a.result.PVs, found.object)
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
	if a.claims[key] || !exists || !a.room(len(a.result.Claims)) {
		return
	}
	a.claims[key] = true
	a.result.Claims = append(a.result.Claims, o)
	a.addPV(o.Spec.VolumeName)
	for _, user := range a.c.podIndex().Value.ofClaim[key] {
		a.addPod(user.Namespace + "/" + user.Name)
	}
}

func (a *around) addPod(key string) {
	p, exists, _ := a.c.pods.find(key)
	if a.pods[key] || !exists || !a.room(len(a.result.Pods)) {
		return
	}
	a.pods[key] = true
	a.result.Pods = append(a.result.Pods, p)
	for _, claim := range p.Claims {
		a.addClaim(p.Namespace, claim)
	}
	a.addNode(p.Node)
}

func (a *around) addNode(name string) {
	if name == "" || a.nodes[name] || !a.room(len(a.nodes)) {
		return
	}
	a.nodes[name] = true
	switch node, exists, err := a.c.nodes.find(name); {
	case err != nil:
	case !exists:
		a.result.Gone = append(a.result.Gone, name)
	default:
		a.result.Nodes = append(a.result.Nodes, node)
	}
}

// addAllOf adds the pods of a node, and the PVs attached to it.
func (a *around) addAllOf(node string) {
	onNode := slices.Clone(a.c.podIndex().Value.onNode[node])
	slices.SortFunc(onNode, func(x, y *explain.Pod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, p := range onNode {
		a.addPod(p.Namespace + "/" + p.Name)
	}
	for _, attachment := range a.cluster.Attachments.Value {
		if name := attachment.Spec.Source.PersistentVolumeName; name != nil && attachment.Spec.NodeName == node {
			a.addPV(*name)
		}
	}
}

func (a *around) addAttachments() {
	for _, attachment := range a.cluster.Attachments.Value {
		name := attachment.Spec.Source.PersistentVolumeName
		if name == nil || !a.pvs[*name] || !a.room(len(a.result.Attachments)) {
			continue
		}
		a.result.Attachments = append(a.result.Attachments, attachment)
		a.addNode(attachment.Spec.NodeName)
	}
	slices.SortFunc(a.result.Attachments, func(x, y storagev1.VolumeAttachment) int { return cmp.Compare(x.Name, y.Name) })
}

func (a *around) addFence(node string) {
	fence, exists, _ := a.c.fences.find(node)
	if exists && !explain.FenceEnded(fence) {
		a.result.Fences = append(a.result.Fences, fence)
	}
}
