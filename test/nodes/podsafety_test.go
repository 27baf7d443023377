//go:build linux

package nodes

import (
	"context"
	"slices"
	"testing"
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
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestPodSafety judges by the stamps in the volume, and by the running processes, whether a StatefulSet's pod is
// replaced before its processes have ended. TestForceDeletionMakesTwoWriters shows the outcome without volume-guard.
func TestPodSafety(t *testing.T) {
	t.Parallel()
	s := startSafety(t)
	for _, scenario := range []struct {
		name string
		run  func(*safety)
	}{
		{"the node is cut off and returns", testPartition},
		{"the node reboots", testReboot},
		{"the kubelet crashes while it ends the pod", testKubeletCrash},
		{"volume-guard is killed and the API server is away", testOutage},
		{"a person confirms", testConfirmed},
		{"out-of-service on a node that is off", testOutOfService},
		{"out-of-service on a node that is Ready", testOutOfServiceReady},
		{"the Node object is deleted", testNodeDeleted},
		{"the pod garbage collector fails pods that run", testFailedByCollector},
		{"another machine has the name of the node", testNameTaken},
		{"the unmount hangs", testUnmountHangs},
		{"the kubelet refuses the pod", testRefused},
		{"drain", testDrain},
		{"rolling update of a StatefulSet", testStatefulSetUpdate},
		{"rolling update of a Deployment", testDeploymentUpdate},
		{"Job", testJob},
		{"namespace deletion", testNamespaceDeletion},
		{"failed and missing containers", testFailedContainers},
		{"latency", testLatency},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			begun := time.Now()
			scenario.run(s.scenario(t, "enforce"))
			t.Logf("in %s", time.Since(begun).Round(100*time.Millisecond))
		})
	}
}

// partition cuts a node off until the scenario ends.
func (s *safety) partition(node string) {
	s.T.Helper()
	s.Must(s.pool.Node(node).Partition())
	s.T.Cleanup(func() { s.Must(s.pool.Node(node).Heal()) })
}

// powerOff ends all processes of a node, until the scenario ends or boots it.
func (s *safety) powerOff(node string) {
	s.T.Helper()
	s.Must(s.pool.Node(node).PowerOff())
	s.T.Cleanup(func() { s.boot(node) })
}

// boot starts a node unless it is on.
func (s *safety) boot(node string) {
	if n := s.pool.Node(node); n.Heal() != nil {
		s.Must(n.Boot(s.CleanupContext()))
	}
}

// waitNotReady waits until the node controller has heard nothing of a node for long.
func (s *safety) waitNotReady(node string) {
	s.T.Helper()
	s.until("node "+node+" is not Ready", func() bool {
		now := s.Nodes().Get(node)
		for _, c := range now.Status.Conditions {
			if c.Type == v1.NodeReady {
				return c.Status == v1.ConditionUnknown
			}
		}
		return false
	})
}

// testPartition expects a pod on a node that is cut off to be held, a force deletion to be refused, and the pod to end
// when the node returns.
func testPartition(s *safety) {
	d := s.startDatabase("db", node1, node2)
	s.partition(node1)
	if err := d.forceDelete(); !apierrors.IsForbidden(err) {
		s.T.Errorf("force deletion without a confirmation: %v, want a refusal", err)
	}
	d.delete()
	s.waitNotReady(node1)
	d.waitSaid("NodeUnreachable")
	if err := d.forceDelete(); !apierrors.IsForbidden(err) {
		s.T.Errorf("force deletion of a pod that is terminating, without a confirmation: %v, want a refusal", err)
	}
	d.expectHeld()
	s.Must(s.pool.Node(node1).Heal())
	d.waitReplaced("Finished")
}

// testReboot has a node lose power while its pod is terminating, and boot.
func testReboot(s *safety) {
	d := s.startDatabase("db", node1, node2, stubborn(longEnd))
	d.delete()
	d.waitKilling()
	s.powerOff(node1)
	s.waitNotReady(node1)
	d.waitSaid("NodeUnreachable")
	d.expectStays()
	s.Must(s.pool.Node(node1).Boot(s.Ctx))
	d.waitReplaced("Finished")
}

// testConfirmed has a person falsely confirm that the processes have ended. The data shows the cost of this way out.
func testConfirmed(s *safety) {
	d := s.startDatabase("db", node1, node2)
	s.partition(node1)
	if err := d.forceDelete(); !apierrors.IsForbidden(err) {
		s.T.Errorf("force deletion without a confirmation: %v, want a refusal", err)
	}
	other := *d.first
	other.UID = "of-another-pod"
	s.confirm(s.Ctx, &other)
	if err := d.forceDelete(); !apierrors.IsForbidden(err) {
		s.T.Errorf("force deletion with a confirmation of another UID: %v, want a refusal", err)
	}
	s.confirm(s.Ctx, d.first)
	s.Must(d.forceDelete())
	var second *v1.Pod
	s.until("the pod is replaced", func() bool {
		second = d.now()
		return second != nil && second.UID != d.first.UID
	})
	s.waitWritten(d.volume, second.UID, 10)
	s.expectRuns(node1, d.first.UID, true)
	written, err := s.driver.Stamps(d.volume.Handle)
	s.Must(err)
	if overlaps := stamps.Overlaps(written); len(overlaps) != 1 || overlaps[0].First.Pod != d.first.UID {
		s.T.Errorf("overlaps %v, want that of the pod whose end was confirmed, and its replacement", overlaps)
	}
	s.expectReleased(d.name, "Confirmed")
	s.Must(s.pool.Node(node1).Heal())
	s.waitEnded(node1, d.first.UID)
}

func (s *safety) waitEnded(node string, pod types.UID) {
	s.T.Helper()
	s.until("the kubelet ends the pod", func() bool {
		runs, err := s.pool.Node(node).Runs(s.Ctx, pod)
		s.Must(err)
		return !runs
	})
}

// taintOutOfService declares a node to be out of service, or ends that.
func (s *safety) taintOutOfService(node string, is bool) {
	s.T.Helper()
	nodes := s.Client.CoreV1().Nodes()
	s.Eventually("the taints of the node are written", func() bool {
		now, err := nodes.Get(s.Ctx, node, metav1.GetOptions{})
		s.Must(err)
		taints := []v1.Taint{}
		for _, taint := range now.Spec.Taints {
			if taint.Key != v1.TaintNodeOutOfService {
				taints = append(taints, taint)
			}
		}
		if is {
			taints = append(taints, v1.Taint{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown",
				Effect: v1.TaintEffectNoExecute})
		}
		now.Spec.Taints = taints
		_, err = nodes.Update(s.Ctx, now, metav1.UpdateOptions{})
		return err == nil
	})
}

// testOutOfService has a node declared off that is off.
func testOutOfService(s *safety) {
	d := s.startDatabase("db", node1, node2)
	s.powerOff(node1)
	s.waitNotReady(node1)
	s.taintOutOfService(node1, true)
	s.T.Cleanup(func() { s.withCleanupContext().taintOutOfService(node1, false) })
	d.waitReplaced("OutOfService")
}

// withCleanupContext is the same for clean-ups.
func (s *safety) withCleanupContext() *safety {
	env, shared := *s.environment, *s.Environment
	shared.Ctx = s.CleanupContext()
	env.Environment = &shared
	return &safety{environment: &env, guard: s.guard}
}

// testOutOfServiceReady has a node declared off that runs.
func testOutOfServiceReady(s *safety) {
	d := s.startDatabase("db", node1, node2, stubborn(longEnd))
	s.taintOutOfService(node1, true)
	s.T.Cleanup(func() { s.withCleanupContext().taintOutOfService(node1, false) })
	d.waitSaid("OutOfServiceNodeReady")
	d.expectHeld()
	d.waitReplaced("Finished")
}

// testNodeDeleted cuts off two nodes and deletes their Node objects, so that the pod garbage collector ends their pods
// in the API. One of the nodes returns. The other has lost power.
func testNodeDeleted(s *safety) {
	returns := s.startDatabase("returns", node1, node2)
	lost := s.startDatabase("lost", node2, node1)
	s.partition(node1)
	s.powerOff(node2)
	deleted := time.Now()
	for _, node := range []string{node1, node2} {
		s.Nodes().Delete(node)
	}
	rejoin := s.onceRejoined(node1)
	s.T.Cleanup(func() {
		rejoin(s.CleanupContext())
		s.boot(node2)
		s.waitDriver(s.CleanupContext(), node2)
	})
	s.until("the pod garbage collector fails the pod", func() bool {
		now := returns.now()
		return now != nil && now.Status.Phase == v1.PodFailed && now.DeletionTimestamp != nil
	})
	s.T.Logf("the pod garbage collector acts after %s: %s", time.Since(deleted).Round(100*time.Millisecond),
		describe(returns.now()))
	returns.expectHeld()
	if now := lost.now(); now == nil || now.UID != lost.first.UID {
		s.T.Errorf("the pod of the node that is off was released %s after its Node was deleted", time.Since(deleted))
	}
	s.Must(s.pool.Node(node1).Heal())
	s.waitEnded(node1, returns.first.UID)
	s.until("the pod of the kubelet that is back is released", func() bool { return s.released(returns.name) != "" })
	s.T.Logf("released %s after the deletion of the Node", time.Since(deleted).Round(100*time.Millisecond))
	rejoin(s.Ctx)
	returns.waitReplaced("Finished")
	lost.waitReplaced("NodeGone")
	if took := time.Since(deleted); took < 80*time.Second {
		s.T.Errorf("the pod of the node that is off was replaced after %s", took)
	}
}

// onceRejoined returns a function that makes a node with a deleted Node object join the cluster again: its kubelet
// registers when it starts.
func (s *safety) onceRejoined(node string) func(context.Context) {
	done := false
	return func(ctx context.Context) {
		if done {
			return
		}
		s.Must(s.pool.Node(node).Restart(ctx))
		s.waitDriver(ctx, node)
		done = true
	}
}

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
	s.StatefulSets().Merge("db", `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
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
	second := s.CreatePod(objects.PodSpec{Name: "second", Change: func(pod *v1.Pod) {
		pod.Spec = nodes.WriterSpec(claim.Name)
		pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = node2, ptr.To[int64](0)
	}})
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
		pod := s.CreatePod(objects.PodSpec{Name: name, Change: func(pod *v1.Pod) {
			pod.Spec = nodes.WriterSpec(claim.Name)
			pod.Spec.NodeName = node1
			change(&pod.Spec)
		}})
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
			each.WaitRunning(pod)
			began := time.Now()
			each.Must(pod.Delete(each.Ctx))
			each.Must(pod.WaitGone(each.WithTimeout()))
			took = append(took, time.Since(began).Round(10*time.Millisecond))
		}
		slices.Sort(took)
		s.T.Logf("held %v: a pod is gone after %v", each == s, took)
	}
}
