package fakenode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// runPods writes the status of each pod bound to the node, as a kubelet would, until ctx ends.
func (n *Node) runPods(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](10*time.Millisecond, time.Second))
	enqueue := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			queue.Add(name)
		}
	}
	// A node may list only pods bound to it, which it must say.
	pods, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(n.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
			fields.OneTermEqualSelector("spec.nodeName", n.name)),
		ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    enqueue,
			UpdateFunc: func(_, obj any) { enqueue(obj) },
		},
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		informer.RunWithContext(ctx)
		queue.ShutDown()
	}()
	for {
		name, shutdown := queue.Get()
		if shutdown {
			<-stopped
			return nil
		}
		after, err := n.syncPod(ctx, pods, name)
		switch {
		case err != nil:
			queue.AddRateLimited(name)
		case after > 0:
			queue.AddAfter(name, after)
		default:
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// syncPod writes the next status of one pod. after is the delay until the next write, 0 for none.
func (n *Node) syncPod(ctx context.Context, pods cache.Store, name cache.ObjectName) (after time.Duration, err error) {
	obj, exists, err := pods.GetByKey(name.String())
	if err != nil || !exists {
		return 0, err
	}
	pod, ok := obj.(*corev1.Pod)
	switch {
	case !ok:
		return 0, fmt.Errorf("pod %s: unexpected %T", name, obj)
	case pod.DeletionTimestamp != nil:
		if left := n.endingLeft(pod, time.Now()); left > 0 {
			return left, nil
		}
		return 0, n.finishPod(ctx, pod)
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		if ready, err := n.claimsReady(ctx, pod); err != nil || !ready {
			return retryInterval, err
		}
		return 0, n.startPod(ctx, pod)
	}
	return 0, nil
}

// claimsReady reports whether a pod can start with its claims (getPVCExtractPV in
// pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go).
func (n *Node) claimsReady(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if !n.config.WaitForClaims {
		return true, nil
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		name := volume.PersistentVolumeClaim.ClaimName
		claim, err := n.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read claim %s/%s: %w", pod.Namespace, name, err)
		}
		if claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound {
			return false, nil
		}
	}
	return true, nil
}

// endingLeft returns the time that a terminating pod still takes to end, 0 if it was force-deleted.
func (n *Node) endingLeft(pod *corev1.Pod, now time.Time) time.Duration {
	grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
	return n.config.Ending - now.Sub(pod.DeletionTimestamp.Add(-grace))
}

// finishPod ends a terminating pod at once, since it has no processes. As a kubelet does, it writes the final status
// before it deletes the pod. An error also means that the pod was not found, which is not yet its end: after a restart
// of the API server, admission of nodes looks into a cache that is not filled yet (admitPod in
// plugin/pkg/admission/noderestriction). As a kubelet does, a node repeats the deletion until its watch shows the end.
func (n *Node) finishPod(ctx context.Context, pod *corev1.Pod) error {
	if !hasEnded(pod) {
		if err := n.patchPodStatus(ctx, pod, endedStatus(pod, metav1.Now())); err != nil {
			return err
		}
	}
	now := int64(0)
	return n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now,
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
}

// hasEnded reports whether the status of a terminating pod says that nothing of it runs any more.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded && slices.ContainsFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool {
			return c.Type == corev1.ContainersReady && c.Reason == podCompleted &&
				// An API server that does not track generations drops the condition's.
				(c.ObservedGeneration == pod.Generation || c.ObservedGeneration == 0)
		})
}

// podCompleted is the reason of the conditions of a pod that has succeeded (pkg/kubelet/status/generate.go).
const podCompleted = "PodCompleted"

// endedStatus is the status of a pod whose containers ended after its deletion, without an error.
func endedStatus(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodSucceeded}
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse,
			Reason: podCompleted, LastTransitionTime: now, ObservedGeneration: pod.Generation})
	}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: "fakenode://" + container.Image,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now}},
		})
	}
	return status
}

// startPod says that all containers of a pod run and are ready.
func (n *Node) startPod(ctx context.Context, pod *corev1.Pod) error {
	return n.patchPodStatus(ctx, pod, n.runningStatus(pod, metav1.Now()))
}

func (n *Node) patchPodStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, // not a new pod of that name
		"status":   status,
	})
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (n *Node) runningStatus(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	ip := n.addresses.pod(string(pod.UID))
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		StartTime: &now,
		HostIP:    n.addresses.node(),
		HostIPs:   []corev1.HostIP{{IP: n.addresses.node()}},
		PodIP:     ip,
		PodIPs:    []corev1.PodIP{{IP: ip}},
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		status.Conditions = append(status.Conditions,
			corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	started := true
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: "fakenode://" + container.Image,
			Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	for _, container := range pod.Spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: "fakenode://" + container.Image, Ready: true,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: now, FinishedAt: now,
			}},
		})
	}
	return status
}
