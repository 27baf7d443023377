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

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// keyOf returns the key of an object in caches and queues.
func keyOf(namespace, name string) string { return cache.NewObjectName(namespace, name).String() }

// namespace is the cached record of a namespace with Label.
type namespace = objects.Namespace[singlenode.Mode]

func namespaceOf(o *v1.Namespace) namespace {
	return namespace{Name: o.Name, Mode: singlenode.ModeOf(o.Labels)}
}

// pod is the cached part of a pod with claims. Most pods run and take little memory.
type pod struct {
	namespace, name string
	uid             types.UID
	node            string
	claims          []string
	// created is the creation time in seconds since 1970.
	created int64
	// all has every field that decisions need. It is nil for a pod that has no gate, is not terminating or final, and fits
	// a node.
	all *singlenode.Pod
}

// podOf converts a Pod and keeps no reference to it.
func podOf(o *v1.Pod) *pod {
	all := objects.PodOf(o)
	p := &pod{namespace: unique.Make(o.Namespace).Value(), name: o.Name, uid: o.UID,
		node: unique.Make(o.Spec.NodeName).Value(), claims: all.Claims, created: o.CreationTimestamp.Unix()}
	if all.Gated || all.Terminating || all.Final || all.Unschedulable {
		p.all = &all
	}
	return p
}

func (p *pod) objectName() cache.ObjectName { return cache.NewObjectName(p.namespace, p.name) }

func (p *pod) key() string { return p.objectName().String() }

func (p *pod) gated() bool { return p.all != nil && p.all.Gated }

// groups returns the group of the pod in podsOn, and in gatedIn, empty for none.
func (p *pod) groups() (node, gated string) {
	switch {
	case p == nil:
		return "", ""
	case p.gated():
		return p.node, p.namespace
	}
	return p.node, ""
}

// facts returns the pod for decisions.
func (p *pod) facts() singlenode.Pod {
	if p.all != nil {
		return *p.all
	}
	return objects.Pod{Namespace: p.namespace, Name: p.name, UID: p.uid, Node: p.node, Claims: p.claims}
}

// same reports whether two states are equal in everything that decisions depend on.
func (p *pod) same(other *pod) bool {
	if p.all == nil || other.all == nil {
		return reflect.DeepEqual(p, other)
	}
	a, b := *p.all, *other.all
	a.ResourceVersion, b.ResourceVersion = "", ""
	return reflect.DeepEqual(a, b)
}

// recordPod keeps pods with the gate, and pods with claims in a namespace that asks for locks. Other pods are left out,
// with a record if one of their claims has a lock or a waiting pod, and nil otherwise.
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

// claim is the cached part of a claim, without Unasked and Volume.
type claim struct {
	singlenode.Claim
	// class and volume are the names of its StorageClass and PV, empty for none.
	class, volume string
	// asks reports that it has Label with SelectValue, shared that it requests an access mode for many nodes.
	asks, shared bool
}

// claimOf converts a claim and keeps no reference to it.
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

// same reports whether two states are equal in everything that decisions depend on.
func (c *claim) same(other *claim) bool {
	a, b := *c, *other
	a.ResourceVersion, b.ResourceVersion = "", ""
	return reflect.DeepEqual(a, b)
}

// recordClaim keeps claims in namespaces that ask for locks, and claims that have one.
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

// class is the cached part of a StorageClass: whether it has Label with SelectValue. Without its name, a class that does
// not would seem to be none.
type class struct {
	name string
	asks bool
}

func classOf(o *storagev1.StorageClass) class { return class{o.Name, asks(o.Labels)} }

// volume is the cached part of a PV: the volume that a fence may cover, its claim, and whether it has Label with
// SelectValue.
type volume struct {
	objects.Volume
	claimNamespace, claimName string
	asks                      bool
}

// recordVolume returns the recorder of PVs, and drops the fields that only fences need if fences is false.
func recordVolume(fences bool) kube.Recorder[volume] {
	return kube.RecordAll(func(o *v1.PersistentVolume) volume {
		pv := volumeOf(o)
		if !fences {
			pv.Volume = objects.Volume{}
		}
		return pv
	})
}

func volumeOf(o *v1.PersistentVolume) volume {
	pv := volume{Volume: objects.VolumeOf(o), asks: asks(o.Labels)}
	pv.Driver = unique.Make(pv.Driver).Value()
	if ref := o.Spec.ClaimRef; ref != nil {
		pv.claimNamespace, pv.claimName = unique.Make(ref.Namespace).Value(), ref.Name
	}
	return pv
}
