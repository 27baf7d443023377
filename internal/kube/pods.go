package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// ForceDeletePod asks the API server to delete the pod with that UID, and with that resourceVersion unless version is
// empty, with a grace period of 0. A pod without finalizers is then gone at once, even if its processes run. Its errors
// are the same as for Delete.
func ForceDeletePod(ctx context.Context, pods corev1.PodInterface, name string, uid types.UID, version string) error {
	now := int64(0)
	return remove(ctx, pods, "delete pod %q with a grace period of 0: %w", name, uid, version,
		metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// ConditionPatch is a write of one condition of a pod that leaves all others unchanged.
type ConditionPatch struct {
	// Name and UID identify the pod. Required.
	Name string
	UID  types.UID
	// Condition is set or, with Remove, the condition of its type is removed; its Type is required.
	Condition v1.PodCondition
	Remove    bool
}

// body is a strategic merge patch, which merges conditions by their type; a JSON merge patch would replace all of them.
func (p ConditionPatch) body() ([]byte, error) {
	if p.UID == "" || p.Condition.Type == "" {
		return nil, errors.New("want a UID, and the type of a condition")
	}
	var condition any = p.Condition
	if p.Remove {
		condition = map[string]any{"$patch": "delete", "type": p.Condition.Type}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []any{condition}},
	})
}

// PatchPodCondition carries out p, with the same errors as PatchFinalizers.
func PatchPodCondition(ctx context.Context, pods corev1.PodInterface, p ConditionPatch) error {
	if _, err := patch(ctx, pods, p.Name, types.StrategicMergePatchType, p.body, "", "status"); err != nil {
		return fmt.Errorf("patch condition %s of pod %q: %w", p.Condition.Type, p.Name, err)
	}
	return nil
}

// RemovePodGate removes a scheduling gate from the pod with that UID, and leaves other gates unchanged. It returns the
// resulting pod; the removal of a missing gate changes nothing. Its errors are the same as for PatchFinalizers.
func RemovePodGate(ctx context.Context, pods corev1.PodInterface, name string, uid types.UID,
	gate string) (after *v1.Pod, err error) {
	if uid == "" || gate == "" {
		return nil, fmt.Errorf("remove scheduling gate of pod %q: want a UID and a gate", name)
	}
	// A strategic merge patch, which merges gates by their name.
	body := func() ([]byte, error) {
		return json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": uid},
			"spec":     map[string]any{"schedulingGates": []any{map[string]any{"$patch": "delete", "name": gate}}},
		})
	}
	if after, err = patch(ctx, pods, name, types.StrategicMergePatchType, body, ""); err != nil {
		return nil, fmt.Errorf("remove scheduling gate %s of pod %q: %w", gate, name, err)
	}
	return after, nil
}
