//go:build unix

package pods

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/tour/guard"
)

// agentNamespace has the PodTemplate of the agent, and its Jobs.
const agentNamespace = "fencers"

// shortest is the shortest time that a FencePolicy may wait.
const shortest = 40 * time.Second

// startFencing installs fencing as an operator does, and starts volume-guard again with the controller for that.
func (env *environment) startFencing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*cluster.Patience)
	defer cancel()
	files := append(manifests.NodeFencing(), "rbac-volume-guard-fence-agents.yaml")
	if err := manifests.Apply(ctx, env.Plane.Admin(), files...); err != nil {
		return err
	}
	if err := env.makeNamespace(ctx, agentNamespace, nil); err != nil {
		return err
	}
	if err := rbac.Bind(ctx, env.Client, agentNamespace, guard.Name, "ClusterRole", "volume-guard-fence-agent-job",
		guardHome, guard.Name); err != nil {
		return err
	}
	_, err := env.Client.CoreV1().PodTemplates(agentNamespace).Create(ctx, &v1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "power-off"}, Template: v1.PodTemplateSpec{Spec: env.nodes.agent()},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if env.fences, err = client.New(env.Plane.Admin()); err != nil {
		return err
	}
	return env.restartGuard(ctx, "node-fencing")
}

// createPolicy has nodes fenced that are unreachable.
func (play *podPlay) createPolicy(ctx context.Context) error {
	play.t.User(fmt.Sprintf("creates a FencePolicy: after %v, a Job powers the node off", shortest))
	_, err := play.fences.Policies.Create(ctx, &v1alpha1.FencePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "demo"},
		Spec: v1alpha1.FencePolicySpec{
			UnreachableAfter: metav1.Duration{Duration: shortest}, MaxFences: intstr.FromInt32(1),
			HaltAbove: 50, // one of the two nodes is cut off
			Agents: []v1alpha1.Agent{{Name: "power-off", Covers: v1alpha1.CoversUntilUnfenced,
				Timeout: metav1.Duration{Duration: time.Minute},
				Job:     &v1alpha1.JobAgent{Namespace: agentNamespace, PodTemplateName: "power-off"}}},
		},
	}, metav1.CreateOptions{})
	return err
}

// tolerating has a pod evicted soon from a node that is unreachable.
func tolerating(spec v1.PodSpec) v1.PodSpec {
	spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists,
		Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](1)}}
	return spec
}

// evicted waits until Kubernetes has given the node up, and shows that this alone replaces no pod.
func (play *podPlay) evicted(ctx context.Context) error {
	var pod *v1.Pod
	err := cluster.Until(ctx, "the pod to be evicted", func(ctx context.Context) (is bool, err error) {
		pod, err = play.Client.CoreV1().Pods(play.scenario.name).Get(ctx, podName, metav1.GetOptions{})
		return err == nil && (pod.DeletionTimestamp != nil || pod.UID != play.first.UID), err
	})
	if err != nil {
		return err
	}
	play.t.API(cluster.Node1 + " is not Ready, and pod " + podName + " is terminating, held")
	if err := play.explainNode(ctx); err != nil {
		return err
	}
	return play.nodes.waitWritten(ctx, play.vol, play.first.UID)
}

// fenced waits until the policy has had the node fenced, and the pod is replaced.
func (play *podPlay) fenced(ctx context.Context) error {
	err := cluster.Until(ctx, "a NodeFence", func(ctx context.Context) (bool, error) {
		fence, err := play.fence(ctx)
		return fence != nil, err
	})
	if err != nil {
		return err
	}
	play.t.API("NodeFence " + cluster.Node1 + " is there")
	if err := play.runAgent(ctx); err != nil {
		return err
	}
	var second *v1.Pod
	err = cluster.Until(ctx, "the pod to be replaced", func(ctx context.Context) (is bool, err error) {
		second, err = play.Client.CoreV1().Pods(play.scenario.name).Get(ctx, podName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && second.UID != play.first.UID, err
	})
	if err != nil {
		return err
	}
	fence, err := play.fence(ctx)
	if err != nil {
		return err
	}
	play.seen.deleted, play.seen.replaced = evictedPod, replacedEarly
	if fence != nil && fence.Status.Proof != nil && !second.CreationTimestamp.Before(&fence.Status.Proof.ProvenAt) {
		play.seen.replaced = replacedFenced
	}
	if second, err = play.waitRunning(ctx, play.first.UID); err != nil {
		return err
	}
	play.t.API("pod " + podName + " is gone, and its replacement runs on " + second.Spec.NodeName)
	return play.explainNode(ctx)
}

// fence returns the fence of the first node, nil for none.
func (play *podPlay) fence(ctx context.Context) (*v1alpha1.NodeFence, error) {
	fence, err := play.fences.Fences.Get(ctx, cluster.Node1, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return fence, err
}

// runAgent waits until the Job of the agent is complete. Where nodes are played, so is its pod.
func (play *podPlay) runAgent(ctx context.Context) error {
	pods := play.Client.CoreV1().Pods(agentNamespace)
	var pod *v1.Pod
	err := cluster.Until(ctx, "the agent's pod", func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 || list.Items[0].Status.Phase == v1.PodPending {
			return false, err
		}
		pod = &list.Items[0]
		return true, nil
	})
	if err != nil {
		return err
	}
	play.t.API("the agent's Job runs on " + pod.Spec.NodeName)
	if !play.nodes.real() {
		_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`),
			metav1.PatchOptions{}, "status")
		if err != nil {
			return err
		}
	}
	err = cluster.Until(ctx, "the agent's Job to be complete", func(ctx context.Context) (bool, error) {
		jobs, err := play.Client.BatchV1().Jobs(agentNamespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(jobs.Items) == 1 && isComplete(&jobs.Items[0]), err
	})
	if err == nil {
		play.t.API("the Job is complete: " + cluster.Node1 + " is off")
	}
	return err
}

func isComplete(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == v1.ConditionTrue {
			return true
		}
	}
	return false
}

// returned boots the node, and waits for the end of the fence.
func (play *podPlay) returned(ctx context.Context) error {
	play.t.Demo(cluster.Node1 + " boots")
	if err := play.nodes.boot(ctx, cluster.Node1); err != nil {
		return err
	}
	err := cluster.Until(ctx, "the end of the fence", func(ctx context.Context) (bool, error) {
		fence, err := play.fence(ctx)
		if err != nil || fence == nil || !meta.IsStatusConditionTrue(fence.Status.Conditions, v1alpha1.ConditionReturned) {
			return false, err
		}
		node, err := play.Client.CoreV1().Nodes().Get(ctx, cluster.Node1, metav1.GetOptions{})
		for i := range node.Spec.Taints {
			if node.Spec.Taints[i].Key == v1.TaintNodeOutOfService {
				return false, err
			}
		}
		return err == nil, err
	})
	if err == nil {
		play.t.API("the fence has ended: " + cluster.Node1 + " was rebooted, and its taint is removed")
	}
	return err
}
