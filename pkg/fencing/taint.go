package fencing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// errTaken is returned because the API server allows only one taint with the same key and effect.
var errTaken = errors.New("it has the taint " + v1.TaintNodeOutOfService + " of others with each effect")

// withTaint returns the taints, with this one as the only taint of this project.
//
// The effect of the taint out-of-service is NoExecute, which also deletes the pods that tolerate an unreachable node.
// If other programs have added that taint, the effect is NoSchedule: Kubernetes looks for the key alone
// (pkg/controller/podgc and pkg/controller/volume/attachdetach), and a node cannot have two taints with the same key
// and effect.
func withTaint(taints []v1.Taint, is fencing.Taint) ([]v1.Taint, error) {
	others := slices.DeleteFunc(slices.Clone(taints), objects.IsOwnTaint)
	switch is {
	case fencing.OutOfService:
	case fencing.VolumesFenced:
		return append(others, v1.Taint{Key: objects.VolumesFencedTaint, Effect: v1.TaintEffectNoSchedule}), nil
	default:
		return others, nil
	}
	for _, effect := range []v1.TaintEffect{v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule} {
		taken := func(t v1.Taint) bool { return t.Key == v1.TaintNodeOutOfService && t.Effect == effect }
		if !slices.ContainsFunc(others, taken) {
			return append(others, v1.Taint{Key: v1.TaintNodeOutOfService, Value: objects.OwnTaintValue, Effect: effect}), nil
		}
	}
	return nil, errTaken
}

// hasTaint reports whether a Node has this taint of this project and no more dangerous one, or none at all for NoTaint.
func hasTaint(o *v1.Node, is fencing.Taint) bool {
	switch n := objects.NodeOf(o); is {
	case fencing.OutOfService:
		return n.OwnTaint
	case fencing.VolumesFenced:
		return n.VolumesFenced && !n.OwnTaint
	default:
		return !n.Tainted()
	}
}

// taintPatch returns a JSON merge patch that replaces the taints of a Node, if it is unchanged since it was read.
func taintPatch(o *v1.Node, taints []v1.Taint) ([]byte, error) {
	if o.UID == "" || o.ResourceVersion == "" {
		return nil, errors.New("want a UID and a resourceVersion to change the taints of a node")
	}
	if taints == nil {
		taints = []v1.Taint{}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	})
}

// setTaint replaces the whole list of taints, because a merge patch cannot change one entry. The write is bound to a
// live read, which must show the same version of the Node as the decision.
func (a apiServer) setTaint(ctx context.Context, ask fencing.Ask) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.Nodes().Get(ctx, ask.Node, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("read node %q: %w", ask.Node, kube.Meaning(err, ask.Node))
	case o.ResourceVersion != ask.NodeVersion:
		return fmt.Errorf("node %q: %w", ask.Node, kube.ErrChanged)
	}
	taints, err := withTaint(o.Spec.Taints, ask.Taint)
	if err != nil {
		return fmt.Errorf("taint node %q: %w", ask.Node, err)
	}
	body, err := taintPatch(o, taints)
	if err != nil {
		return err
	}
	after, err := a.clients.Core.Nodes().Patch(ctx, ask.Node, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change the taints of node %q: %w", ask.Node, kube.Meaning(err, ask.Node))
	}
	if !hasTaint(after, ask.Taint) {
		return fmt.Errorf("change the taints of node %q: %w", ask.Node, kube.ErrUndone)
	}
	return nil
}

func (a apiServer) eachTainted(ctx context.Context, visit func(string, objects.Node)) error {
	err := kube.Each(ctx, metav1.ListOptions{Limit: listPage}, listTimeout, a.clients.Core.Nodes().List,
		func(o *v1.Node) {
			if n := objects.NodeOf(o); n.Tainted() {
				visit(o.Name, n)
			}
		})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	return nil
}
