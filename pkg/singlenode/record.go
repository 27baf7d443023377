package singlenode

import (
	"fmt"
	"reflect"
	"slices"
	"unique"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// keyOf returns the key of an object in caches and queues.
func keyOf(namespace, name string) string { return cache.NewObjectName(namespace, name).String() }

// namespace is what is kept of a namespace with Label.
type namespace struct {
	name string
	mode singlenode.Mode
}

func recordNamespace(object runtime.Object, _ bool) (namespace, bool, error) {
	o, ok := object.(*v1.Namespace)
	if !ok {
		return namespace{}, false, fmt.Errorf("watch namespaces: got a %T", object)
	}
	return namespace{o.Name, singlenode.ModeOf(o.Labels)}, true, nil
}

// pod is what is kept of a pod with claims: most run, and of those it is little.
type pod struct {
	namespace, name string
	uid             types.UID
	node            string
	claims          []string
	// created is when it was created, in seconds since 1970.
	created int64
	// all is what is decided from, nil for a pod that has no gate, is not terminating, has not ended, and fits a node.
	all *singlenode.Pod
}

// podOf reads what is needed of a Pod, without keeping a reference to it.
func podOf(o *v1.Pod) *pod {
	all := objects.PodOf(o)
	p := &pod{namespace: unique.Make(o.Namespace).Value(), name: o.Name, uid: o.UID,
		node: unique.Make(o.Spec.NodeName).Value(), claims: all.Claims, created: o.CreationTimestamp.Unix()}
	if all.Gated || all.Terminating || all.Final || all.Unschedulable {
		p.all = &all
	}
	return p
}

func (p *pod) key() string { return keyOf(p.namespace, p.name) }

func (p *pod) gated() bool { return p.all != nil && p.all.Gated }

// facts returns what is decided from.
func (p *pod) facts() singlenode.Pod {
	if p.all != nil {
		return *p.all
	}
	return objects.Pod{Namespace: p.namespace, Name: p.name, UID: p.uid, Node: p.node, Claims: p.claims}
}

// same reports whether nothing that decisions depend on differs.
func (p *pod) same(other *pod) bool {
	if p.all == nil || other.all == nil {
		return reflect.DeepEqual(p, other)
	}
	a, b := *p.all, *other.all
	a.ResourceVersion, b.ResourceVersion = "", ""
	return reflect.DeepEqual(a, b)
}

// recordPod keeps pods that have the gate, and those with claims in a namespace that asks for locks. Others with claims
// are left out; they have a record where something waits for one of their claims, and nil otherwise.
func recordPod(o *observer) func(runtime.Object, bool) (*pod, bool, error) {
	return func(object runtime.Object, known bool) (*pod, bool, error) {
		p, ok := object.(*v1.Pod)
		if !ok {
			return nil, false, fmt.Errorf("watch pods: got a %T", object)
		}
		keep := objects.HasVolumeGate(p) || objects.HasClaims(p) && o.modeOf(p.Namespace) != singlenode.ModeOff
		if !keep && !known && !slices.ContainsFunc(objects.PodOf(p).Claims, func(claim string) bool {
			return o.concerned(keyOf(p.Namespace, claim))
		}) {
			return nil, false, nil
		}
		return podOf(p), keep, nil
	}
}

// claim is what is kept of a claim. Its Unasked and Volume are not set.
type claim struct {
	singlenode.Claim
	// class and volume are the names of its StorageClass and PV, empty for none.
	class, volume string
	// asks: it has Label with SelectValue. shared: it requests an access mode of many nodes.
	asks, shared bool
}

// claimOf reads what is needed of a claim, without keeping a reference to it.
func claimOf(o *v1.PersistentVolumeClaim) *claim {
	c := &claim{Claim: singlenode.ClaimOf(o), volume: o.Spec.VolumeName, asks: asks(o.Labels),
		shared: slices.ContainsFunc(o.Spec.AccessModes, func(m v1.PersistentVolumeAccessMode) bool {
			return m == v1.ReadWriteMany || m == v1.ReadOnlyMany
		})}
	c.Namespace = unique.Make(o.Namespace).Value()
	if o.Spec.StorageClassName != nil {
		c.class = unique.Make(*o.Spec.StorageClassName).Value()
	}
	return c
}

func asks(labels map[string]string) bool { return labels[singlenode.Label] == singlenode.SelectValue }

func (c *claim) key() string { return keyOf(c.Namespace, c.Name) }

// marked reports whether the claim has a lock, or a part of one.
func (c *claim) marked() bool { return c.Locked || c.Kept }

// same reports whether nothing that decisions depend on differs.
func (c *claim) same(other *claim) bool {
	a, b := *c, *other
	a.ResourceVersion, b.ResourceVersion = "", ""
	return reflect.DeepEqual(a, b)
}

// recordClaim keeps claims in namespaces that ask for locks, and those that have one.
func recordClaim(modeOf func(namespace string) singlenode.Mode) func(runtime.Object, bool) (*claim, bool, error) {
	return func(object runtime.Object, _ bool) (*claim, bool, error) {
		o, ok := object.(*v1.PersistentVolumeClaim)
		if !ok {
			return nil, false, fmt.Errorf("watch claims: got a %T", object)
		}
		c := claimOf(o)
		return c, c.marked() || modeOf(o.Namespace) != singlenode.ModeOff, nil
	}
}

// class is what is kept of a StorageClass: whether it has Label with SelectValue.
type class struct{ asks bool }

func recordClass(object runtime.Object, _ bool) (class, bool, error) {
	o, ok := object.(*storagev1.StorageClass)
	if !ok {
		return class{}, false, fmt.Errorf("watch StorageClasses: got a %T", object)
	}
	return classOf(o), true, nil
}

func classOf(o *storagev1.StorageClass) class { return class{asks(o.Labels)} }

// volume is what is kept of a PV: what a fence may cover, whether it has Label with SelectValue, and the claim that it
// is for.
type volume struct {
	objects.Volume
	claimNamespace, claimName string
	asks                      bool
}

// recordVolume returns the recorder of PVs. Without fences, nothing is kept that only they need.
func recordVolume(fences bool) kube.Recorder[volume] {
	return func(object runtime.Object, _ bool) (volume, bool, error) {
		o, ok := object.(*v1.PersistentVolume)
		if !ok {
			return volume{}, false, fmt.Errorf("watch PVs: got a %T", object)
		}
		pv := volumeOf(o)
		if !fences {
			pv.Volume = objects.Volume{}
		}
		return pv, true, nil
	}
}

func volumeOf(o *v1.PersistentVolume) volume {
	pv := volume{Volume: objects.VolumeOf(o), asks: asks(o.Labels)}
	pv.Driver = unique.Make(pv.Driver).Value()
	if ref := o.Spec.ClaimRef; ref != nil {
		pv.claimNamespace, pv.claimName = unique.Make(ref.Namespace).Value(), ref.Name
	}
	return pv
}

// node is what is kept of a Node.
type node struct {
	name string
	seen podsafety.NodeSeen
}

func recordNode(object runtime.Object, _ bool) (node, bool, error) {
	o, ok := object.(*v1.Node)
	if !ok {
		return node{}, false, fmt.Errorf("watch nodes: got a %T", object)
	}
	facts := podsafety.NodeOf(o)
	return node{o.Name, facts.Seen()}, true, nil
}
