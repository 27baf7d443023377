//go:build linux

package nodes

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// testDrain evicts a pod as kubectl drain does.
func testDrain(s *safety) {
	d := s.startDatabase("db", node1, node2)
	s.Must(s.Client.CoreV1().Pods(s.Namespace).EvictV1(s.Ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: d.name}}))
	d.waitReplaced("Finished")
}

// testStatefulSetUpdate replaces the pod of a StatefulSet by one of another template.
func testStatefulSetUpdate(s *safety) {
	d := s.startDatabase("db", node1, node2)
	_, err := s.Client.AppsV1().StatefulSets(s.Namespace).Patch(s.Ctx, "db", types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`), metav1.PatchOptions{})
	s.Must(err)
	if second := d.waitReplaced("Finished"); second.Labels["version"] != "2" {
		s.T.Errorf("the replacement has the labels %v", second.Labels)
	}
}

// mountedClaim provisions a volume for pods that are no database.
func (s *safety) mountedClaim() *objects.Claim {
	s.T.Helper()
	for _, node := range []string{node1, node2} {
		s.cordon(s.Ctx, node, false)
	}
	claim := s.CreateClaim(s.CreateStorageClass())
	s.WaitBound(claim)
	return claim
}

// podsWhen waits until the pods of the scenario are as wanted.
func (s *safety) podsWhen(what string, so func([]v1.Pod) bool) (pods []v1.Pod) {
	s.T.Helper()
	s.until(what, func() bool {
		list, err := s.Client.CoreV1().Pods(s.Namespace).List(s.Ctx, metav1.ListOptions{})
		s.Must(err)
		pods = list.Items
		return so(pods)
	})
	return pods
}

// testDeploymentUpdate rolls a Deployment, which promises nothing about two pods at once.
func testDeploymentUpdate(s *safety) {
	claim := s.mountedClaim()
	labels := map[string]string{"app": "web"}
	deployments := s.Client.AppsV1().Deployments(s.Namespace)
	_, err := deployments.Create(s.Ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: nodes.WriterSpec(claim.Name)},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	old := s.podsWhen("two pods run, held", func(pods []v1.Pod) bool { return len(pods) == 2 && allRun(pods) })
	_, err = deployments.Patch(s.Ctx, "web", types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`), metav1.PatchOptions{})
	s.Must(err)
	began := time.Now()
	s.podsWhen("two others run, and no more are there", func(pods []v1.Pod) bool {
		return len(pods) == 2 && allRun(pods) && pods[0].Labels["version"] == "2" && pods[1].Labels["version"] == "2"
	})
	s.T.Logf("2 pods rolled in %s", time.Since(began).Round(100*time.Millisecond))
	for i := range old {
		s.expectRuns(old[i].Spec.NodeName, old[i].UID, false)
		s.expectReleased(old[i].Name, "Finished")
	}
	s.Must(deployments.Delete(s.Ctx, "web",
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	s.until("the Deployment is gone", func() bool {
		_, err := deployments.Get(s.Ctx, "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	s.podsWhen("its pods are gone", func(pods []v1.Pod) bool { return len(pods) == 0 })
}

func allRun(pods []v1.Pod) bool {
	for i := range pods {
		if pods[i].Status.Phase != v1.PodRunning || !isHeld(&pods[i]) || pods[i].DeletionTimestamp != nil {
			return false
		}
	}
	return true
}

// testJob has a Job's pod end by itself. The hold keeps it until it is deleted.
func testJob(s *safety) {
	claim := s.mountedClaim()
	spec := nodes.WriterSpec(claim.Name)
	spec.RestartPolicy = v1.RestartPolicyNever
	spec.Containers[0].Args = []string{"exit", "0"}
	jobs := s.Client.BatchV1().Jobs(s.Namespace)
	_, err := jobs.Create(s.Ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: batchv1.JobSpec{Template: v1.PodTemplateSpec{Spec: spec}}}, metav1.CreateOptions{})
	s.Must(err)
	s.until("the Job is complete", func() bool {
		job, err := jobs.Get(s.Ctx, "job", metav1.GetOptions{})
		s.Must(err)
		return job.Status.CompletionTime != nil && job.Status.Succeeded == 1
	})
	pods := s.podsWhen("its pod has ended, held", func(pods []v1.Pod) bool { return len(pods) == 1 && isHeld(&pods[0]) })
	began := time.Now()
	s.Must(jobs.Delete(s.Ctx, "job", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	var last v1.Pod
	s.podsWhen("its pod is gone", func(pods []v1.Pod) bool {
		if len(pods) > 0 {
			last = pods[0]
		}
		return len(pods) == 0
	})
	s.T.Logf("the pod of a Job is gone %s after the deletion; last %s", time.Since(began).Round(10*time.Millisecond),
		describe(&last))
	s.expectReleased(pods[0].Name, "Finished")
}

// testNamespaceDeletion deletes a namespace with pods, one of them born without a grace period.
func testNamespaceDeletion(s *safety) {
	claim := s.mountedClaim()
	first := s.writer("first", node1, claim.Name)
	second, err := s.MakePod(s.Ctx, objects.PodSpec{Name: "second", Change: func(pod *v1.Pod) {
		pod.Spec = nodes.WriterSpec(claim.Name)
		pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = node2, ptr.To[int64](0)
	}})
	s.Must(err)
	s.podsWhen("both run, held", func(pods []v1.Pod) bool { return len(pods) == 2 && allRun(pods) })
	began := time.Now()
	s.DeleteNamespace()
	s.until("the namespace is gone", func() bool {
		_, err := s.Client.CoreV1().Namespaces().Get(s.Ctx, s.Namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	s.T.Logf("the namespace is gone %s after the deletion", time.Since(began).Round(10*time.Millisecond))
	s.expectRuns(node1, first.UID, false)
	s.expectRuns(node2, second.UID, false)
}

// testFailedContainers deletes pods whose end the kubelet reports in another way: one in CrashLoopBackOff, one without
// its image, one in its init container, and two that failed for good before, one of them in its init container.
func testFailedContainers(s *safety) {
	claim := s.mountedClaim()
	kinds := map[string]func(*v1.PodSpec){
		"crash-loop": func(spec *v1.PodSpec) { spec.Containers[0].Args = []string{"exit", "1"} },
		"no-image":   func(spec *v1.PodSpec) { spec.Containers[0].Image = "localhost/none:test" },
		"init": func(spec *v1.PodSpec) {
			spec.InitContainers = []v1.Container{spec.Containers[0]}
			spec.InitContainers[0].Name = "init"
		},
		"failed": func(spec *v1.PodSpec) {
			spec.RestartPolicy = v1.RestartPolicyNever
			spec.Containers[0].Args = []string{"exit", "1"}
		},
		"init-failed": func(spec *v1.PodSpec) {
			spec.RestartPolicy = v1.RestartPolicyNever
			spec.InitContainers = []v1.Container{spec.Containers[0]}
			spec.InitContainers[0].Name, spec.InitContainers[0].Args = "init", []string{"exit", "1"}
		},
	}
	var made []*objects.Pod
	for name, change := range kinds {
		pod, err := s.MakePod(s.Ctx, objects.PodSpec{Name: name, Change: func(pod *v1.Pod) {
			pod.Spec = nodes.WriterSpec(claim.Name)
			pod.Spec.NodeName = node1
			change(&pod.Spec)
		}})
		s.Must(err)
		made = append(made, pod)
	}
	reached := map[string]func(*v1.Pod) bool{
		"crash-loop": func(pod *v1.Pod) bool { return waits(pod, "CrashLoopBackOff") },
		"no-image":   func(pod *v1.Pod) bool { return waits(pod, "ErrImageNeverPull") },
		"init": func(pod *v1.Pod) bool {
			return len(pod.Status.InitContainerStatuses) == 1 && pod.Status.InitContainerStatuses[0].State.Running != nil
		},
		"failed":      func(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodFailed },
		"init-failed": func(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodFailed },
	}
	for _, pod := range made {
		s.Must(pod.Wait(s.WithTimeout(), "as far as it comes, held", func(now *v1.Pod) bool {
			return now != nil && isHeld(now) && reached[pod.Name](now)
		}))
	}
	for _, pod := range made {
		began := time.Now()
		s.Must(pod.Delete(s.Ctx))
		var last *v1.Pod
		s.until("pod "+pod.Name+" is gone", func() bool {
			now, err := pod.Get(s.Ctx)
			s.Must(err)
			if now != nil {
				last = now
			}
			return now == nil
		})
		s.T.Logf("pod %s is gone %s after its deletion; last %s", pod.Name, time.Since(began).Round(10*time.Millisecond),
			describe(last))
		s.expectRuns(node1, pod.UID, false)
		s.expectReleased(pod.Name, "Finished")
	}
}

// waits reports whether the container of a pod waits for this reason.
func waits(pod *v1.Pod, reason string) bool {
	return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Waiting != nil &&
		pod.Status.ContainerStatuses[0].State.Waiting.Reason == reason
}

// testLatency measures from the deletion of a pod to its end, with the hold and without.
func testLatency(s *safety) {
	plain := s.scenario(s.T, "")
	for _, each := range []*safety{plain, s} {
		claim := each.mountedClaim()
		var took []time.Duration
		for range 5 {
			pod := each.writer("writer", node1, claim.Name)
			_, err := pod.WaitRunning(each.WithTimeout())
			each.Must(err)
			began := time.Now()
			each.Must(pod.Delete(each.Ctx))
			each.Must(pod.WaitGone(each.WithTimeout()))
			took = append(took, time.Since(began).Round(10*time.Millisecond))
		}
		slices.Sort(took)
		s.T.Logf("held %v: a pod is gone after %v", each == s, took)
	}
}
