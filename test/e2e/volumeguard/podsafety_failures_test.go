//go:build unix

package volumeguard

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// installLocks applies the kind VolumeLock, and the policies for volume-guard's account.
func (env *podEnvironment) installLocks() {
	env.T.Helper()
	env.ApplyManifest(manifests.PodSafetyCRD)
	env.ApplyManifest(manifests.NodeFencingCRD)
	env.ApplyManifest(manifests.PodSafetyPolicies, guard.Account, env.User)
}

// locking are flags with which volume-guard holds pods and locks their volumes.
func locking(args ...string) []string {
	return holding(append([]string{"--volume-locks=true"}, args...)...)
}

// locks returns the VolumeLocks, as "volume at node".
func (env *podEnvironment) locks() (all []string) {
	env.T.Helper()
	list, err := env.lockClient().List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	for _, o := range list.Items {
		volumes, _, _ := unstructured.NestedMap(o.Object, "spec", "volumes")
		for pv := range volumes {
			all = append(all, pv+" at "+o.GetName())
		}
	}
	slices.Sort(all)
	return all
}

func (env *podEnvironment) lockClient() dynamic.ResourceInterface {
	env.T.Helper()
	client, err := dynamic.NewForConfig(env.Plane.Admin())
	env.Must(err)
	return client.Resource(schema.GroupVersionResource{Group: "csi-reclaimer.io", Version: "v1alpha1",
		Resource: "volumelocks"})
}

func (env *podEnvironment) waitLocks(want ...string) {
	env.T.Helper()
	env.Eventually("the locks are "+strings.Join(want, ", "), func() bool { return slices.Equal(env.locks(), want) })
}

// podWithVolume creates a pod with a volume on a node, and waits until it is held.
func (env *podEnvironment) podWithVolume(node string, grace int64) (*objects.Pod, *objects.Volume) {
	env.T.Helper()
	vol := env.MakeVolume(objects.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain})
	pod := env.CreatePod(objects.PodSpec{Name: "pod-" + rand.String(8), Claims: []string{vol.ClaimName},
		Node: node, Change: func(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = ptr.To(grace) }})
	env.waitHeld(pod)
	return pod, vol
}

// attach tries to attach a volume to a node, as the attach-detach controller does.
func (env *podEnvironment) attach(vol *objects.Volume, node string) error {
	_, err := env.VolumeAttachments().DryRun(&storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "attach-" + rand.String(8)},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "none", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &vol.Name}},
	})
	return err
}

// podNaming creates a pod with its own volume and with a claim that names another volume, and waits until it is held.
func (env *podEnvironment) podNaming(other *objects.Volume, node string) (*objects.Pod, *objects.Volume) {
	env.T.Helper()
	vol := env.MakeVolume(objects.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain})
	claim, err := env.MakeClaim(env.Ctx, objects.ClaimSpec{Name: "thief-" + rand.String(8),
		Change: func(claim *v1.PersistentVolumeClaim) { claim.Spec.VolumeName = other.Name }})
	env.Must(err)
	pod := env.CreatePod(objects.PodSpec{Name: "pod-" + rand.String(8),
		Claims: []string{vol.ClaimName, claim.Name}, Node: node})
	env.waitHeld(pod)
	return pod, vol
}

// TestVolumesOfHeldPodsAreLocked expects volumes to be locked to a node that is away, with the shipped policies, until
// the pod is released. A claim that only names the volume of another locks nothing.
func TestVolumesOfHeldPodsAreLocked(t *testing.T) {
	t.Parallel()
	env := newPodEnvironment(t, fixture.Version())
	env.installLocks()
	g := env.Start(locking("--leader-election=false")...)
	node, other := env.node(), env.node()
	pod, vol := env.podWithVolume(node, 30)
	// Until the API server's admission knows the kind VolumeLock, the policy refuses all attachments.
	env.Eventually("the volume can be attached before it is locked", func() bool { return env.attach(vol, other) == nil })
	env.Must(pod.Delete(env.Ctx))
	env.setReady(node, v1.ConditionUnknown)
	env.waitLocks(vol.Name + " at " + node)
	env.Eventually("the volume cannot be attached to another node", func() bool { return env.attach(vol, other) != nil })
	env.Must(env.attach(vol, node))
	foreign := env.MakeVolume(objects.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain})
	naming, own := env.podNaming(foreign, node)
	env.Must(naming.Delete(env.Ctx))
	env.waitLocks(slices.Sorted(slices.Values([]string{vol.Name + " at " + node, own.Name + " at " + node}))...)
	env.confirm(naming, naming.UID)
	env.deletePodNow(naming.Name)
	env.Must(naming.WaitGone(env.WithTimeout()))
	env.waitLocks(vol.Name + " at " + node)
	env.setReady(node, v1.ConditionTrue)
	env.WaitMetric(g, "csi_reclaimer_pod_safety_volume_locks", "1")

	// At the start, volume-guard removes the locks of pods that are not held, and creates needed locks again.
	env.Must(g.Terminate())
	env.Must(env.lockClient().DeleteCollection(env.Ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	_, err := env.lockClient().Create(env.Ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "csi-reclaimer.io/v1alpha1", "kind": "VolumeLock", "metadata": map[string]any{"name": other},
		"spec": map[string]any{"volumes": map[string]any{
			"left": map[string]any{"namespace": env.Namespace, "pod": "left", "uid": "left"}}},
	}}, metav1.CreateOptions{})
	env.Must(err)
	env.setReady(node, v1.ConditionUnknown)
	env.Must(g.Restart())
	env.waitLocks(vol.Name + " at " + node)

	env.confirm(pod, pod.UID) // or the policies refuse the force deletion
	env.deletePodNow(pod.Name)
	env.Must(pod.WaitGone(env.WithTimeout()))
	env.waitLocks()
	env.Eventually("the volume can be attached", func() bool { return env.attach(vol, other) == nil })
}

// TestPodSafetyKilledAtEachWrite kills volume-guard after each write for a pod, right after the API server stored it.
func TestPodSafetyKilledAtEachWrite(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newPodEnvironment(t, controlplane.Newest)
	env.installLocks()
	// The finalizer is added, the pod marked, the lock created, the pod deleted and released, the lock deleted.
	const least = 6
	env.KillAtEachWrite(least, []string{"pods", "pods/status", "volumelocks"}, func() {
		node := env.node()
		pod, vol := env.podWithVolume(node, 1)
		env.setReady(node, v1.ConditionUnknown)
		env.Must(pod.Wait(env.WithTimeout(), "marked", isMarked))
		env.Must(pod.Delete(env.Ctx))
		env.waitLocks(vol.Name + " at " + node)
		env.expectPodHeld(pod, "NodeUnreachable")
		env.confirm(pod, pod.UID)
		env.Must(pod.WaitGone(env.WithTimeout()))
		env.waitLocks()
	}, func() {}, locking()...)
}

// TestPodsAreHeldWhileAPIServerIsAway also expects the release of confirmed pods when the API server is back.
func TestPodsAreHeldWhileAPIServerIsAway(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newPodEnvironment(t, controlplane.Newest)
	env.Flags = holding()
	env.RestartAPIServers(func(begin, end func()) {
		node := env.node()
		held, confirmed := env.heldPod(node), env.heldPod(node)
		env.setReady(node, v1.ConditionUnknown)
		for _, pod := range []*objects.Pod{held, confirmed} {
			env.Must(pod.Delete(env.Ctx))
			env.expectPodHeld(pod, "NodeUnreachable")
		}
		begin()
		env.deletePodNow(confirmed.Name)
		env.confirm(confirmed, confirmed.UID)
		end()
		env.Must(confirmed.WaitGone(env.WithTimeout()))
		now, err := held.Get(env.Ctx)
		if env.Must(err); !isHeld(now) {
			t.Error("WRONG END: a pod on a node that is away is gone, or was released")
		}
	})
}

// TestFormerPodSafetyLeaderMakesNoWrites confirms the end of pods when the former leader resumes, so that it would
// release them as the leader does. It covers all controllers of volume-guard, which write by one client. The test waits
// for the lease to run out, because a changed Lease alone does not stop a former leader that goes by its own clock.
func TestFormerPodSafetyLeaderMakesNoWrites(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newPodEnvironment(t, controlplane.Newest)
	user, kubeconfig := env.SecondAccount("former")
	binary, err := fixture.VolumeGuardBinary(t.Context())
	env.Must(err)
	former := env.StartReplica(program.Options{
		Name: fixture.VolumeGuardName, Binary: binary,
		Args: append([]string{"--kubeconfig=" + kubeconfig, "--leader-election-namespace=" + env.Namespace},
			append(holding(), fixture.ReplicaFlags("former")...)...),
	})
	next := env.Start(append(holding(), fixture.NextReplicaFlags("next")...)...)
	node := env.node()
	var pods []*objects.Pod
	for range 10 {
		pod := env.heldPod(node)
		env.Must(pod.Delete(env.Ctx))
		pods = append(pods, pod)
	}
	env.Must(former.Pause())
	env.Must(next.WaitLog(env.WithTimeout(), "Became the leader"))
	resumed := time.Now()
	env.Must(former.Resume())
	for _, pod := range pods {
		env.deletePodNow(pod.Name)
		env.confirm(pod, pod.UID)
	}
	for _, pod := range pods {
		env.Must(pod.WaitGone(env.WithTimeout()))
	}
	env.ExpectNoWritesAfter(former, user, resumed)
}

// TestPodsAreReleased runs --release-finalizers with the shipped policies, while a replica runs.
func TestPodsAreReleased(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newPodEnvironment(t, controlplane.Newest)
	env.installLocks()
	env.ApplyManifest(manifests.PodSafetyHold)
	g := env.Start(append(locking(), shortLease()...)...)
	node := env.node()
	env.Eventually("the policy is in force", func() bool {
		vol := env.createPodWithClaim(env.CreateClaim("none"), "")
		now, err := vol.Get(env.Ctx)
		env.Must(err)
		return isHeld(now)
	})
	pod, vol := env.podWithVolume(node, 30)
	running := env.heldPod(node)
	_, claim := env.heldEphemeral(node)
	env.setReady(node, v1.ConditionUnknown)
	env.Must(pod.Delete(env.Ctx))
	env.waitLocks(vol.Name + " at " + node)
	env.Must(running.Wait(env.WithTimeout(), "marked", isMarked))

	output, err := env.Release(append(locking(), shortLease()...)...)
	env.Must(err)
	<-g.Done()
	env.Must(g.Restart()) // it waits for the Lease
	for _, want := range []string{
		"mutatingadmissionpolicybinding/csi-reclaimer-pod-hold was deleted",
		"pods were released, 1 VolumeLock, the finalizer of 1 claim",
		"pod " + env.Namespace + "/" + pod.Name + " on node " + node + " was terminating",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("the output lacks %q: %s", want, output)
		}
	}
	env.waitLocks()
	if now, err := claim.Get(env.Ctx); err != nil || now == nil ||
		slices.Contains(now.Finalizers, records.RunningFinalizer) {
		t.Errorf("claim %s is held, or gone: %v", claim.Name, err)
	}
	for _, now := range env.InNamespace(metav1.NamespaceAll).Pods().List() {
		if isHeld(now) || isMarked(now) {
			t.Errorf("pod %s is held or marked", now.Name)
		}
	}
	after := env.createPodWithClaim(env.CreateClaim("none"), node)
	if now, err := after.Get(env.Ctx); err != nil || isHeld(now) {
		t.Errorf("a pod that is created after the release is held: %v", err)
	}
}

// TestPodSafetyPermissionsAreNecessaryAndSufficient exercises the controller with its own shipped permissions.
func TestPodSafetyPermissionsAreNecessaryAndSufficient(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := &podEnvironment{newWithControlPlane(t, controlplane.Newest, controlplane.Options{
		Controllers: withoutPodCollection(),
	})}
	env.label(env.Namespace, "enforce")
	rules, err := rbac.GrantGuardController(env.Ctx, env.Client, env.Namespace, fixture.VolumeGuardName, "pod-safety")
	env.Must(err)
	env.installLocks()
	g := env.Start(locking()...)
	fakenode.ForTest(t, env.Plane, "node", fakenode.Config{})
	gone, node := env.node(), env.node()
	env.heldEphemeral(node)
	orphan := env.heldPod(gone)
	env.Must(orphan.Delete(env.Ctx))
	env.Nodes().Delete(gone)
	ended := env.heldPod("node")
	env.WaitRunning(ended)
	env.Must(ended.Delete(env.Ctx))
	env.Must(ended.WaitGone(env.WithTimeout()))
	pod, vol := env.podWithVolume(node, 1)
	second, other := env.podWithVolume(node, 1)
	env.setReady(node, v1.ConditionUnknown)
	env.Must(pod.Wait(env.WithTimeout(), "marked", isMarked))
	env.Must(pod.Delete(env.Ctx))
	env.waitLocks(vol.Name + " at " + node)
	env.Must(second.Delete(env.Ctx))
	env.waitLocks(slices.Sorted(slices.Values([]string{vol.Name + " at " + node, other.Name + " at " + node}))...)
	env.confirm(second, second.UID)
	env.Must(second.WaitGone(env.WithTimeout()))
	env.waitPodEvent(pod, "NodeUnreachable")
	env.confirm(pod, "other")
	env.waitPodEvent(pod, "ConfirmationMismatch")
	env.confirm(pod, "")
	env.waitPodEvents(pod, "NodeUnreachable", 2) // the same again is a patch
	env.confirm(pod, pod.UID)
	env.Must(pod.WaitGone(env.WithTimeout()))
	env.Must(g.Terminate())
	_, err = env.Release(locking()...)
	env.Must(err)
	env.ExpectAllRulesUsed(rules)
}
