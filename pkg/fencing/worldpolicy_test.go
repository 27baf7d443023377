package fencing

import (
	"context"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

func (w *world) listLeases(context.Context) (map[string]string, error) {
	if err := w.call("list leases"); err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for name, version := range w.leases {
		versions[name] = strconv.Itoa(version)
	}
	return versions, nil
}

func (w *world) listWaiting(_ context.Context, node string) ([]Waiting, error) {
	return w.pods[node], w.call("list pods of %s", node)
}

func (w *world) listBudgets(_ context.Context, namespace string) ([]budget, error) {
	return w.budgets[namespace], w.call("list budgets of %s", namespace)
}

func (w *world) readNamespace(_ context.Context, name string) (map[string]string, error) {
	return w.spaces[name], w.call("get namespace %s", name)
}

func (w *world) readPolicy(_ context.Context, name string) (*v1alpha1.FencePolicy, error) {
	if err := w.call("get policy"); err != nil || w.policies[name] == nil {
		return nil, err
	}
	return w.policies[name].DeepCopy(), nil
}

func (w *world) listFences(context.Context) (all []fencing.Fence, err error) {
	if err := w.call("list fences"); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(w.fences)) {
		all = append(all, fencing.FenceOf(w.fences[name].DeepCopy()))
	}
	return all, nil
}

func (w *world) readLabeledNode(_ context.Context, name string) (*objects.LabeledNode, error) {
	if err := w.call("get whole node"); err != nil || w.nodes[name] == nil {
		return nil, err
	}
	return objects.LabeledNodeOf(w.nodes[name]), nil
}

func (w *world) createFence(_ context.Context, o *v1alpha1.NodeFence) error {
	return w.write(func() error {
		if w.fences[o.Name] != nil {
			return kube.ErrChanged
		}
		o = o.DeepCopy()
		o.UID, o.CreationTimestamp = types.UID("fence-"+w.version()), metav1.NewTime(w.clock.Now())
		w.put(o)
		return nil
	}, "create fence of %s", o.Name)
}

func (w *world) writePolicyStatus(_ context.Context, p *v1alpha1.FencePolicy,
	status v1alpha1.FencePolicyStatus) error {
	return w.write(func() error {
		o := w.policies[p.Name]
		switch {
		case o == nil || o.UID != p.UID:
			return kube.ErrGone
		case o.ResourceVersion != p.ResourceVersion:
			return kube.ErrChanged
		}
		o = o.DeepCopy()
		o.Status = *status.DeepCopy()
		o.ResourceVersion = w.version()
		w.policies[p.Name] = o
		return nil
	}, "status of policy")
}
