//go:build unix

package fencing

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// singleNode is the controller that locks claims.
const singleNode = "single-node"

// TestClaimLocks plays fences of volumes that free the locks of claims, and fences that must not. The pods are created
// with the gate, so that the scenarios are the same on every version of Kubernetes.
func TestClaimLocks(t *testing.T) {
	t.Parallel()
	env := newEnvironmentOf(t, controller, podSafety, singleNode)
	env.guard = env.Start("--leader-election=false")
	env.run(
		scenario{"a pod is deleted, and its node fenced from the volume", testLockThenFence},
		scenario{"a node is fenced from the volume, and its pod deleted", testFenceThenDelete},
		scenario{"a node is fenced from the volume and reboots, and its pod is deleted", testRebootThenDelete},
	)
}

// locking is a claim with a lock: the first pod has it, on a machine, and the second waits for it, to run on the spare
// one.
type locking struct {
	*environment
	on            *machine
	volume        *objects.Volume
	first, second *v1.Pod
}

func (env *environment) locking(name string) *locking {
	env.T.Helper()
	env.Namespaces().Label(env.Namespace, map[string]string{singlenode.Label: singlenode.AllValue})
	l := &locking{environment: env, on: env.machine(name, nil)}
	l.volume = env.MakeVolume(objects.Spec{Handle: l.on.name, Policy: v1.PersistentVolumeReclaimRetain})
	l.first = env.user(l.volume.ClaimName, l.on.name)
	env.waitRuns(l.first)
	l.second = env.user(l.volume.ClaimName, env.spare.name)
	l.waitSays("ClaimInUse")
	l.expectWaits()
	return l
}

// user creates a pod that is gated and uses a claim on a node.
func (env *environment) user(claim, node string) *v1.Pod {
	env.T.Helper()
	return env.Pods().Create(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "user-" + rand.String(5)},
		Spec: v1.PodSpec{
			Containers:      []v1.Container{{Name: "main", Image: "none"}},
			NodeSelector:    map[string]string{v1.LabelHostname: node},
			SchedulingGates: []v1.PodSchedulingGate{{Name: records.VolumeGate}},
			// Only the test deletes it.
			Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}},
			Volumes:     []v1.Volume{objects.ClaimVolume("data", claim)},
		},
	})
}

func (env *environment) podNow(pod *v1.Pod) *v1.Pod {
	env.T.Helper()
	if now := env.Pods().Find(pod.Name); now != nil && now.UID == pod.UID {
		return now
	}
	return nil
}

func (env *environment) waitRuns(pod *v1.Pod) {
	env.T.Helper()
	env.Eventually("pod "+pod.Name+" runs", func() bool {
		now := env.podNow(pod)
		return now != nil && now.Status.Phase == v1.PodRunning && now.DeletionTimestamp == nil
	})
}

func (env *environment) waitPodGone(pod *v1.Pod) {
	env.T.Helper()
	env.Eventually("pod "+pod.Name+" is gone", func() bool { return env.podNow(pod) == nil })
}

// waitSays waits until volume-guard has said why the second pod waits.
func (l *locking) waitSays(reason string) {
	l.T.Helper()
	l.WaitEvent(v1.ObjectReference{UID: l.second.UID}, reason)
}

// holder returns the UID of the pod that has the lock of a claim, empty for none.
func (env *environment) holder(claim string) types.UID {
	env.T.Helper()
	uid, _, _ := strings.Cut(env.Claims().Get(claim).Annotations[singlenode.LockAnnotation], " ")
	return types.UID(uid)
}

// expectWaits checks that the first pod has the lock, and is held, and the second waits.
func (l *locking) expectWaits() {
	l.T.Helper()
	if got := l.holder(l.volume.ClaimName); got != l.first.UID {
		l.T.Errorf("WRONG RELEASE: pod %q has the lock, want the first one, %s", got, l.first.UID)
	}
	if now := l.podNow(l.second); now == nil || len(now.Spec.SchedulingGates) == 0 {
		l.T.Errorf("WRONG RELEASE: the second pod does not wait: %+v", now)
	}
	l.expectFirstHeld()
}

func (l *locking) expectFirstHeld() {
	l.T.Helper()
	if now := l.podNow(l.first); !isHeld(now) {
		l.T.Errorf("WRONG RELEASE: the first pod is gone or released: %+v", now)
	}
}

// expectFreed waits until the second pod runs, while the first one is held.
func (l *locking) expectFreed() {
	l.T.Helper()
	l.waitRuns(l.second)
	if got := l.holder(l.volume.ClaimName); got != l.second.UID {
		l.T.Errorf("pod %q has the lock, want the second one, %s", got, l.second.UID)
	}
	l.expectFirstHeld()
}

// fence has the machine be fenced from the volumes.
func (l *locking) fence() *fence {
	l.T.Helper()
	l.createNetworkFenceClass(l.on.name)
	f := l.environment.fence(l.on, l.networkFenceAgent(l.on.name))
	f.reportNetworkFence(f.waitNetworkFence("Fenced"), "Succeeded", "fencing operation successful")
	f.waitFenced(l.on.name)
	return f
}

// ends has the machine get its volumes back, once it was rebooted and its kubelet has ended the first pod.
func (l *locking) ends(f *fence) {
	l.T.Helper()
	l.waitPodGone(l.first)
	f.reportNetworkFence(f.waitNetworkFence("Unfenced"), "Succeeded", "unfencing operation successful")
	f.waitReturned("NodeRebooted")
}

// testLockThenFence has a pod that was terminating before the fence began, so no kubelet starts it again.
func testLockThenFence(env *environment) {
	l := env.locking("lock")
	l.on.lose()
	l.Pods().Delete(l.first.Name)
	l.barrier()
	l.expectWaits()
	f := l.fence()
	l.expectFreed()
	l.on.boot()
	l.ends(f)
}

// testFenceThenDelete deletes the pod while the Node still has the fence's boot ID.
func testFenceThenDelete(env *environment) {
	l := env.locking("fenced")
	l.on.lose()
	f := l.fence()
	l.barrier()
	l.expectWaits() // the first one is not deleted
	l.Pods().Delete(l.first.Name)
	l.expectFreed()
	l.on.boot()
	l.ends(f)
}

// In testRebootThenDelete the kubelet has started the pod again after the reboot. The fence is about to end, but still
// in force, because a volume is being detached.
func testRebootThenDelete(env *environment) {
	l := env.locking("rebooted")
	detached := l.detaches(l.on.name)
	l.on.lose()
	f := l.fence()
	l.on.boot()
	env.Eventually("the fence waits for the volume", func() bool { return env.guardSays(l.on.name, "RemainsOnNode") })
	l.on.lose()
	l.Pods().Delete(l.first.Name)
	l.barrier()
	l.expectWaits()
	if now := f.get(); now == nil || !isFenced(now) {
		env.T.Errorf("the fence is not in force any more: nothing was tested: %s", describe(now))
	}
	detached()
	l.barrier()
	l.expectWaits()
	l.on.resume()
	l.waitRuns(l.second)
	l.ends(f)
}

// detaches has a volume be detached from a node until the returned function is called.
func (env *environment) detaches(node string) (detached func()) {
	env.T.Helper()
	env.VolumeAttachments().Create(&storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: node, Finalizers: []string{"external-attacher/none"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "none", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &node}},
	})
	env.VolumeAttachments().Delete(node)
	return func() { env.VolumeAttachments().SetFinalizers(node) }
}

// barrier returns once volume-guard has locked and freed another claim. An unwanted action would have happened by then.
func (l *locking) barrier() {
	l.T.Helper()
	volume := l.MakeVolume(objects.Spec{Handle: "barrier-" + rand.String(5), Policy: v1.PersistentVolumeReclaimRetain})
	pod := l.user(volume.ClaimName, l.spare.name)
	l.waitRuns(pod)
	if got := l.holder(volume.ClaimName); got != pod.UID {
		l.T.Errorf("pod %q has the lock of the other claim, want %s", got, pod.UID)
	}
	l.Pods().Delete(pod.Name)
	l.waitPodGone(pod)
	l.Eventually("the lock of the other claim is freed", func() bool { return l.holder(volume.ClaimName) == "" })
}
