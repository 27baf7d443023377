package podsafety

import (
	"fmt"
	"slices"
	"unique"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// pod is the cached record of a held or marked pod. It is small for pods that are held and run, which are most of them.
type pod struct {
	namespace, name string
	uid             types.UID
	node            string
	held            bool
	// marked reports the condition NodeUnreachable.
	marked bool
	// all is the full record for decisions, or nil for a held pod that is not terminating.
	all *objects.Pod
}

// podOf returns the record of a Pod, which keeps no reference to o.
func podOf(o *v1.Pod) *pod {
	p := &pod{
		namespace: unique.Make(o.Namespace).Value(), name: o.Name, uid: o.UID, node: unique.Make(o.Spec.NodeName).Value(),
		held: slices.Contains(o.Finalizers, objects.RunningFinalizer), marked: isMarked(o),
	}
	if !p.held || o.DeletionTimestamp != nil {
		all := objects.PodOf(o)
		p.all = &all
	}
	return p
}

func isMarked(o *v1.Pod) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == objects.NodeUnreachable
	})
}

func (p *pod) objectName() cache.ObjectName { return cache.NewObjectName(p.namespace, p.name) }

func (p *pod) key() string { return p.objectName().String() }

// facts returns the record for decisions, which for a running pod consists of its identity and node.
func (p *pod) facts() objects.Pod {
	if p.all != nil {
		return *p.all
	}
	return objects.Pod{Namespace: p.namespace, Name: p.name, UID: p.uid, Node: p.node, Held: p.held}
}

// waits reports whether the pod is held and terminating.
func (p *pod) waits() bool { return p.held && p.all != nil && p.all.Terminating }

// recordPod keeps pods that are held or marked. The record of any other pod is not cached, and nil unless its namespace
// asks for pod safety.
func recordPod(modeOf func(namespace string) podsafety.Mode) func(runtime.Object, bool) (*pod, bool, error) {
	return func(object runtime.Object, known bool) (*pod, bool, error) {
		o, ok := object.(*v1.Pod)
		if !ok {
			return nil, false, fmt.Errorf("watch pods: got a %T", object)
		}
		keep := slices.Contains(o.Finalizers, objects.RunningFinalizer) || isMarked(o)
		if !keep && !known && modeOf(o.Namespace) == podsafety.ModeOff {
			return nil, false, nil
		}
		return podOf(o), keep, nil
	}
}

// namespace is the cached record of a namespace with NamespaceLabel.
type namespace = objects.Namespace[podsafety.Mode]

func namespaceOf(o *v1.Namespace) namespace {
	return namespace{Name: o.Name, Mode: podsafety.ModeOf(o.Labels)}
}
