package singlenode

import (
	"context"
	"maps"
	"slices"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// find returns an object of a world, unless the call is set to fail.
func find[O any](w *world, from func() map[string]O, key, call string, args ...any) (o O, found bool, err error) {
	if err := w.call(call, args...); err != nil {
		return o, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, found = from()[key]
	return o, found, nil
}

func (w *world) readMode(_ context.Context, name string) (singlenode.Mode, error) {
	o, found, err := find(w, func() map[string]*v1.Namespace { return w.namespaces }, name, "get namespace")
	switch {
	case err != nil:
		return singlenode.ModeUnknown, err
	case !found:
		return singlenode.ModeOff, nil
	}
	return singlenode.ModeOf(o.Labels), nil
}

func (w *world) readClaim(_ context.Context, ns, name string) (*claim, bool, error) {
	o, found, err := find(w, func() map[string]*v1.PersistentVolumeClaim { return w.claims }, ns+"/"+name, "get claim %s",
		name)
	if err != nil || !found {
		return nil, false, err
	}
	return claimOf(o), true, nil
}

func (w *world) readPod(_ context.Context, ns, name string) (singlenode.Pod, bool, error) {
	o, found, err := find(w, func() map[string]*v1.Pod { return w.pods }, ns+"/"+name, "get pod %s", name)
	if err != nil || !found {
		return singlenode.Pod{}, false, err
	}
	return objects.PodOf(o), true, nil
}

func (w *world) readClass(_ context.Context, name string) (class, bool, error) {
	if err := w.call("get class"); err != nil {
		return class{}, false, err
	}
	o, found := w.classes[name]
	if !found {
		return class{}, false, nil
	}
	return classOf(o), true, nil
}

func (w *world) readVolume(_ context.Context, name string) (volume, bool, error) {
	if err := w.call("get volume"); err != nil {
		return volume{}, false, err
	}
	o, found := w.volumes[name]
	if !found {
		return volume{}, false, nil
	}
	return volumeOf(o), true, nil
}

func (w *world) readFence(_ context.Context, node string, pod types.UID) (objects.Fence, error) {
	if err := w.call("get fence"); err != nil || w.fences[node] == nil {
		return objects.Fence{}, err
	}
	return fencing.Evidence(fencing.FenceOf(w.fences[node]), pod), nil
}

func (w *world) readNode(_ context.Context, name string) (objects.Node, error) {
	if err := w.call("get node"); err != nil || w.nodes[name] == nil {
		return objects.Node{}, err
	}
	return objects.NodeOf(w.nodes[name]), nil
}

func (w *world) patchClaim(_ context.Context, ask singlenode.Ask) (*claim, error) {
	what := "free " + ask.Name
	if ask.Lock.Name != "" {
		what = "lock " + ask.Name + " for " + ask.Lock.Name
	}
	if err := w.call("%s", what); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := ask.Namespace + "/" + ask.Name
	o, found := w.claims[key]
	locks := ask.Lock.Name != ""
	switch {
	case !found || o.UID != ask.UID:
		return nil, kube.ErrGone
	case ask.ResourceVersion != "" && o.ResourceVersion != ask.ResourceVersion, locks && o.DeletionTimestamp != nil:
		return nil, kube.ErrChanged
	}
	o = o.DeepCopy()
	delete(o.Annotations, singlenode.LockAnnotation)
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == singlenode.Finalizer })
	if locks {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, singlenode.LockAnnotation, ask.Lock.String())
		o.Finalizers = append(o.Finalizers, singlenode.Finalizer)
	}
	o.ResourceVersion = w.version()
	w.claims[key] = o
	if o.DeletionTimestamp != nil && len(o.Finalizers) == 0 {
		delete(w.claims, key)
	}
	return claimOf(o), nil
}

func (w *world) patchGate(_ context.Context, ask singlenode.Ask) error {
	if err := w.call("ungate %s", ask.Name); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := ask.Namespace + "/" + ask.Name
	o, found := w.pods[key]
	if !found || o.UID != ask.UID {
		return kube.ErrGone
	}
	o = o.DeepCopy()
	o.Spec.SchedulingGates = nil
	o.ResourceVersion = w.version()
	w.pods[key] = o
	return nil
}

func (w *world) eachPod(_ context.Context, ns string, visit func(*v1.Pod)) error {
	if err := w.call("list pods"); err != nil {
		return err
	}
	w.mu.Lock()
	all := maps.Clone(w.pods)
	w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if o := all[key]; ns == "" || o.Namespace == ns {
			visit(o)
		}
	}
	return nil
}

func (w *world) eachClaim(_ context.Context, _ string, visit func(*claim)) error {
	if err := w.call("list claims"); err != nil {
		return err
	}
	w.mu.Lock()
	all := maps.Clone(w.claims)
	w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		visit(claimOf(all[key]))
	}
	return nil
}
