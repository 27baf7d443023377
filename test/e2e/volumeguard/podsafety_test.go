//go:build unix

package volumeguard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// podEnvironment has volume-guard hold pods. The test says whether nodes are Ready, and no controller collects pods.
type podEnvironment struct{ *environment }

func newPodEnvironment(t *testing.T, v controlplane.Version) *podEnvironment {
	t.Helper()
	env := &podEnvironment{newWithVolumeGuard(t, v, controlplane.Options{Controllers: withoutPodCollection()})}
	env.label(env.Namespace, "enforce")
	return env
}

// newSharedPodEnvironment is newPodEnvironment on the control plane that tests share.
func newSharedPodEnvironment(t *testing.T) *podEnvironment {
	t.Helper()
	env := &podEnvironment{of(fixture.NewForVolumeGuard(t))}
	env.Must(rbac.GrantGuard(env.Ctx, env.Client, env.Namespace, fixture.VolumeGuardName))
	env.label(env.Namespace, "enforce")
	return env
}

// holding are flags with which volume-guard holds pods and does nothing else.
func holding(args ...string) []string {
	return append([]string{"--controllers=pod-safety,-intree", "--volume-locks=false", "--unmount-grace=1s",
		"--retry-interval-start=50ms", "--retry-interval-max=500ms"}, args...)
}

// label has a namespace ask for a mode, "" for none.
func (env *podEnvironment) label(namespace, mode string) {
	env.T.Helper()
	env.Namespaces().Label(namespace, map[string]string{podsafety.NamespaceLabel: mode})
}

// node creates a Node that is Ready, with a Lease. No kubelet runs there.
func (env *podEnvironment) node() string {
	env.T.Helper()
	name := "mute-" + rand.String(5)
	env.Nodes().Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	env.setReady(name, v1.ConditionTrue)
	return name
}

func (env *podEnvironment) setReady(node string, status v1.ConditionStatus) {
	env.T.Helper()
	env.Nodes().Patch(node, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status), "status")
}

func (env *podEnvironment) taintOutOfService(node string) {
	env.T.Helper()
	env.Nodes().Patch(node, fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"value":"nodeshutdown","effect":"NoExecute"}]}}`,
		v1.TaintNodeOutOfService))
}

// heldPod creates a pod with a claim on a node, and waits until it is held.
func (env *podEnvironment) heldPod(node string) *objects.Pod {
	env.T.Helper()
	pod := env.createPodWithClaim(env.CreateClaim("none"), node)
	env.waitHeld(pod)
	return pod
}

func isHeld(pod *v1.Pod) bool {
	return pod != nil && slices.Contains(pod.Finalizers, records.RunningFinalizer)
}

func (env *podEnvironment) waitHeld(pod *objects.Pod) {
	env.T.Helper()
	env.Must(pod.Wait(env.WithTimeout(), "held", isHeld))
}

// expectPodHeld checks that a pod is terminating and there, once volume-guard has said why.
func (env *podEnvironment) expectPodHeld(pod *objects.Pod, reason podsafety.Reason) {
	env.T.Helper()
	env.waitPodEvent(pod, reason)
	now, err := pod.Get(env.Ctx)
	env.Must(err)
	if !isHeld(now) || now.DeletionTimestamp == nil {
		env.T.Errorf("WRONG END: pod %s is gone, or was released: %+v", pod.Name, now)
	}
}

func (env *podEnvironment) waitPodEvent(pod *objects.Pod, reason podsafety.Reason) {
	env.T.Helper()
	env.waitPodEvents(pod, reason, 1)
}

// waitPodEvents waits until something was reported on a pod so many times.
func (env *podEnvironment) waitPodEvents(pod *objects.Pod, reason podsafety.Reason, times int32) {
	env.T.Helper()
	env.WaitReports(v1.ObjectReference{UID: pod.UID}, string(reason), times)
}

// confirm confirms by hand that the processes of the pod with this UID have ended, "" nothing.
func (env *podEnvironment) confirm(pod *objects.Pod, uid types.UID) {
	env.T.Helper()
	env.Pods().Annotate(pod.Name, records.ConfirmAnnotation, string(uid))
}

// reportEnd reports, as the kubelet of its node, that a pod has ended. observed says whether it has seen the deletion.
func (env *podEnvironment) reportEnd(pod *objects.Pod, observed bool) {
	env.T.Helper()
	now, err := pod.Get(env.Ctx)
	env.Must(err)
	condition := map[string]any{"type": v1.ContainersReady, "status": "False"}
	if observed {
		condition["reason"], condition["observedGeneration"] = "PodCompleted", now.Generation
	} else if now.Generation > 0 {
		condition["observedGeneration"] = now.Generation - 1
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"phase": v1.PodFailed, "conditions": []any{condition},
		"containerStatuses": []v1.ContainerStatus{{Name: "main", Image: "none", ImageID: "none",
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137}}}},
	}})
	env.Must(err)
	env.Pods().Patch(pod.Name, string(patch), "status")
}

// TestPodIsHeldUntilEvidence plays each kind of evidence, and facts that are none.
func TestPodIsHeldUntilEvidence(t *testing.T) {
	t.Parallel()
	env := newSharedPodEnvironment(t)
	fakenode.ForTest(t, env.Plane, "node", fakenode.Config{})
	g := env.Start(holding("--leader-election=false")...)
	// The subtests end before the program does.
	t.Run("evidence", func(t *testing.T) {
		run := func(sentence string, test func(*podEnvironment)) {
			t.Run(sentence, func(t *testing.T) {
				t.Parallel()
				test(&podEnvironment{env.forSubtest(t)})
			})
		}
		testEvidence(run)
		run("pods that were there when the namespace asked for pod safety are held", func(env *podEnvironment) {
			other := &podEnvironment{env.inOtherNamespace()}
			pod := other.createPodWithClaim(other.CreateClaim("none"), other.node())
			without := other.CreatePod(objects.PodSpec{Name: "without-claim", Node: other.node()})
			other.label(other.Namespace, "enforce")
			other.waitHeld(pod)
			now, err := without.Get(other.Ctx)
			if other.Must(err); isHeld(now) {
				other.T.Error("a pod without a claim is held")
			}
		})
	})
	for _, evidence := range []string{"Finished", "NeverBound", "OutOfService", "Confirmed"} {
		env.Eventually("a release by "+evidence+" is counted", func() bool {
			text, err := g.Get(env.Ctx, "/metrics")
			env.Must(err)
			return !strings.Contains(text, `csi_reclaimer_pod_safety_released_total{evidence="`+evidence+`"} 0`)
		})
	}
}

func testEvidence(run func(string, func(*podEnvironment))) {
	run("a pod whose kubelet is there ends", func(env *podEnvironment) {
		pod := env.heldPod("node")
		env.WaitRunning(pod)
		env.Must(pod.Delete(env.Ctx))
		env.Must(pod.WaitGone(env.WithTimeout()))
	})
	run("a pod without a node ends at once", func(env *podEnvironment) {
		pod := env.heldPod("")
		env.Must(pod.Delete(env.Ctx))
		env.Must(pod.WaitGone(env.WithTimeout()))
	})
	run("a forced pod whose kubelet is away stays until its end is confirmed", func(env *podEnvironment) {
		pod := env.heldPod(env.node())
		now, err := pod.Get(env.Ctx)
		env.Must(err)
		env.setReady(now.Spec.NodeName, v1.ConditionUnknown)
		env.deletePodNow(pod.Name)
		env.expectPodHeld(pod, "NodeUnreachable")
		env.confirm(pod, "another-uid")
		env.expectPodHeld(pod, "ConfirmationMismatch")
		env.confirm(pod, pod.UID)
		env.Must(pod.WaitGone(env.WithTimeout()))
	})
	run("a forced pod stays until its kubelet reports the end and has seen the deletion", func(env *podEnvironment) {
		node := env.node()
		pod := env.heldPod(node)
		env.deletePodNow(pod.Name)
		env.reportEnd(pod, false)
		env.setReady(node, v1.ConditionUnknown)
		env.expectPodHeld(pod, "NodeUnreachable")
		env.setReady(node, v1.ConditionTrue)
		env.reportEnd(pod, true)
		env.Must(pod.WaitGone(env.WithTimeout()))
	})
	run("the claim of a forced pod's ephemeral volume stays as long as the pod", testEphemeralClaim)
	run("the out-of-service taint counts on a node that is not Ready alone", func(env *podEnvironment) {
		node := env.node()
		pod := env.heldPod(node)
		env.Must(pod.Delete(env.Ctx))
		env.taintOutOfService(node)
		env.expectPodHeld(pod, "OutOfServiceNodeReady")
		env.setReady(node, v1.ConditionUnknown)
		env.Must(pod.WaitGone(env.WithTimeout()))
	})
	run("pods show that their node is unreachable", func(env *podEnvironment) {
		node := env.node()
		held := env.heldPod(node)
		warned, silent := &podEnvironment{env.inOtherNamespace()}, &podEnvironment{env.inOtherNamespace()}
		warned.label(warned.Namespace, "warn")
		seen := warned.createPodWithClaim(warned.CreateClaim("none"), node)
		unseen := silent.createPodWithClaim(silent.CreateClaim("none"), node)
		env.setReady(node, v1.ConditionUnknown)
		for _, pod := range []*objects.Pod{held, seen} {
			env.Must(pod.Wait(env.WithTimeout(), "marked", isMarked))
		}
		if now, err := unseen.Get(env.Ctx); err != nil || isMarked(now) {
			env.T.Errorf("a pod of a namespace without the label is marked: %v", err)
		}
		env.setReady(node, v1.ConditionTrue)
		for _, pod := range []*objects.Pod{held, seen} {
			env.Must(pod.Wait(env.WithTimeout(), "not marked", func(pod *v1.Pod) bool { return !isMarked(pod) }))
		}
	})
}

// testEphemeralClaim has Kubernetes release the claims of held pods, which do not count for it after a force deletion.
func testEphemeralClaim(env *podEnvironment) {
	node := env.node()
	pod, claim := env.heldEphemeral(node)
	other, last := env.heldEphemeral(node)
	env.MustDeleteClaim(claim)
	env.MustDeleteClaim(last)
	env.setReady(node, v1.ConditionUnknown)
	env.deletePodNow(pod.Name)
	onlyHeld := func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && slices.Equal(now.Finalizers, []string{records.RunningFinalizer})
	}
	env.WaitClaim(claim, "released by Kubernetes, and held", onlyHeld)
	env.expectPodHeld(pod, "NodeUnreachable")
	// The other claim ends by volume-guard, after all that it decided before.
	env.deletePodNow(other.Name)
	env.confirm(other, other.UID)
	env.WaitClaim(last, "gone", fixture.ClaimIsGone)
	now, err := claim.Get(env.Ctx)
	if env.Must(err); !onlyHeld(now) {
		env.T.Errorf("WRONG END: pod %s is held, and its claim %s is %s", pod.Name, claim.Name, objects.DescribeClaim(now))
	}
	env.expectPodHeld(pod, "NodeUnreachable")
	env.confirm(pod, pod.UID)
	env.Must(pod.WaitGone(env.WithTimeout()))
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
}

// heldEphemeral creates a pod with a generic ephemeral volume on a node, and waits until it is held with its claim.
func (env *podEnvironment) heldEphemeral(node string) (*objects.Pod, *objects.Claim) {
	env.T.Helper()
	pod := env.CreatePod(objects.PodSpec{Name: "pod-" + rand.String(8), Node: node, Change: ephemeral})
	env.waitHeld(pod)
	var claim *objects.Claim
	env.Eventually("the claim of pod "+pod.Name+" is held", func() bool {
		now := env.Claims().Find(pod.Name + "-cache")
		if now == nil || !slices.Contains(now.Finalizers, records.RunningFinalizer) {
			return false
		}
		claim = env.ClaimOf(now)
		return true
	})
	return pod, claim
}

func isMarked(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == records.NodeUnreachable && c.Status == v1.ConditionTrue
	})
}

// TestPodsOfDeletedNode has volume-guard delete the pods of a deleted Node, on a cluster without the pod garbage
// collector. It releases them only after their kubelet has had the time to show that it runs.
func TestPodsOfDeletedNode(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newPodEnvironment(t, controlplane.Newest)
	env.Start(holding("--leader-election=false", "--delete-orphaned-pods")...)
	node := env.node()
	orphaned, deleted := env.heldPod(node), env.heldPod(node)
	env.Must(deleted.Delete(env.Ctx))
	gone := time.Now() // not after the deletion: the test may be kept waiting between both
	env.Nodes().Delete(node)
	ctx, cancel := context.WithTimeout(env.Ctx, 3*time.Minute)
	defer cancel()
	for pod, reason := range map[*objects.Pod]podsafety.Reason{orphaned: "Orphaned", deleted: "NodeGone"} {
		env.Must(pod.WaitGone(ctx))
		if took := time.Since(gone); took < 40*time.Second {
			t.Errorf("pod %s was released after %v, while its kubelet may run", pod.Name, took)
		}
		env.waitPodEvent(pod, reason)
	}
}
