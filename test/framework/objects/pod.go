package objects

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodSpec describes a pod.
type PodSpec struct {
	// Name, new in the namespace. Required.
	Name string
	// Claims are the names of the claims that it uses.
	Claims []string
	// Selector is the labels that its node must have. Default: any node.
	Selector map[string]string
	// Node is where it runs, past the scheduler. Default: where the scheduler sends it.
	Node string
	// Change alters the pod before it is made. Optional.
	Change func(*v1.Pod)
}

// Pod is a pod that uses claims.
type Pod struct {
	maker Maker
	Name  string
	UID   types.UID
}

// MakePod makes a pod and waits for nothing.
func (m Maker) MakePod(ctx context.Context, s PodSpec) (*Pod, error) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec: v1.PodSpec{
			// No container mounts anything: which volumes are used is said by spec.volumes, whether they are devices or
			// filesystems.
			Containers:   []v1.Container{{Name: "main", Image: "none"}},
			NodeSelector: s.Selector, NodeName: s.Node,
		},
	}
	for i, claim := range s.Claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes,
			v1.Volume{Name: fmt.Sprintf("volume-%d", i), VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	if s.Change != nil {
		s.Change(pod)
	}
	stored, err := m.Client.CoreV1().Pods(m.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make pod %q: %w", s.Name, err)
	}
	return &Pod{maker: m, Name: stored.Name, UID: stored.UID}, nil
}

// Get returns the current pod, or nil if it is gone or was replaced by another pod of its name.
func (p *Pod) Get(ctx context.Context) (*v1.Pod, error) {
	pod, err := p.maker.Client.CoreV1().Pods(p.maker.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pod.UID != p.UID:
		return nil, nil
	}
	return pod, nil
}

// Wait returns once the pod is as wanted; want gets nil for a pod that is gone. The error describes
// the state that it was last seen in.
func (p *Pod) Wait(ctx context.Context, what string, want func(*v1.Pod) bool) error {
	return wait(ctx, fmt.Sprintf("pod %q to be %s", p.Name, what), source[v1.Pod]{
		get: p.Get, watch: p.maker.Client.CoreV1().Pods(p.maker.Namespace).Watch, name: p.Name,
		same: func(pod *v1.Pod) bool { return pod.UID == p.UID },
	}, want, describePod)
}

// WaitRunning returns the pod's node once it runs there.
func (p *Pod) WaitRunning(ctx context.Context) (node string, err error) {
	err = p.Wait(ctx, "running", func(pod *v1.Pod) bool {
		if pod == nil || pod.Status.Phase != v1.PodRunning {
			return false
		}
		node = pod.Spec.NodeName
		return true
	})
	return node, err
}

// Delete deletes the pod, as kubectl delete pod --wait=false does.
func (p *Pod) Delete(ctx context.Context) error {
	return p.maker.Client.CoreV1().Pods(p.maker.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
}

// WaitGone returns once the pod is gone.
func (p *Pod) WaitGone(ctx context.Context) error {
	return p.Wait(ctx, "gone", func(pod *v1.Pod) bool { return pod == nil })
}

// describePod describes the state of a pod in a few words, with the scheduler's message.
func describePod(pod *v1.Pod) string {
	if pod == nil {
		return "gone"
	}
	text := string(pod.Status.Phase)
	if pod.Spec.NodeName != "" {
		text += " on " + pod.Spec.NodeName
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodScheduled && condition.Status != v1.ConditionTrue {
			text += ", not scheduled: " + condition.Message
		}
	}
	if pod.DeletionTimestamp != nil {
		text += ", terminating"
	}
	return text
}
