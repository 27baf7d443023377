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

func (w *world) listWaiting(_ context.Context, node string) ([]waiting, error) {
	return w.pods[node], w.call("list pods of %s", node)
}

func (w *world) listBudgets(_ context.Context, namespace string) ([]budget, error) {
	return w.budgets[namespace], w.call("list budgets of %s", namespace)
}

func (w *world) readNamespace(_ context.Context, name string) (map[string]string, error) {
	return w.spaces[name], w.call("get namespace %s", name)
}

func (w *world) readPolicy(_ context.Context, name string) (*policy, bool, error) {
	if err := w.call("get policy"); err != nil || w.policies[name] == nil {
		return nil, false, err
	}
	return policyOf(w.policies[name].DeepCopy()), true, nil
}

func (w *world) listFences(context.Context) (all []*fence, err error) {
	if err := w.call("list fences"); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(w.fences)) {
		all = append(all, fenceOf(w.fences[name].DeepCopy()))
	}
	return all, nil
}

func (w *world) readWholeNode(_ context.Context, name string) (*node, bool, error) {
	if err := w.call("get whole node"); err != nil || w.nodes[name] == nil {
		return nil, false, err
	}
	return wholeNodeOf(w.nodes[name]), true, nil
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

func (w *world) deleteEnded(ctx context.Context, f *fence) error {
	return w.deleteFence(ctx, fencing.Ask{Node: f.Name, UID: f.UID, ResourceVersion: f.ResourceVersion})
}

func (w *world) writePolicyStatus(_ context.Context, p *policy, status v1alpha1.FencePolicyStatus) error {
	return w.write(func() error {
		o := w.policies[p.name]
		switch {
		case o == nil || o.UID != p.uid:
			return kube.ErrGone
		case o.ResourceVersion != p.version:
			return kube.ErrChanged
		}
		o = o.DeepCopy()
		o.Status = *status.DeepCopy()
		o.ResourceVersion = w.version()
		w.policies[p.name] = o
		return nil
	}, "status of policy")
}
