//go:build linux

package nodes

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// The nodes of the shared control plane. Tests use them one after the other.
const (
	node1 = "node-1"
	node2 = "node-2"
)

// shared are the nodes of the control plane that the tests share.
var shared struct {
	start sync.Once
	pool  *nodes.Pool
	err   error
}

func TestMain(m *testing.M) {
	code := fixture.Main(m)
	if shared.pool != nil {
		if err := shared.pool.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// startPool starts the shared nodes unless they run.
func startPool(t *testing.T, plane *controlplane.ControlPlane) *nodes.Pool {
	t.Helper()
	shared.start.Do(func() {
		begun := time.Now()
		shared.pool, shared.err = nodes.Start(context.Background(), plane,
			nodes.Options{Names: []string{node1, node2}, Progress: os.Stderr})
		t.Logf("two nodes in %s", time.Since(begun).Round(100*time.Millisecond))
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.pool
}

// environment is the environment of a test: nodes with a driver that deletes any volume on request.
type environment struct {
	*fixture.Environment
	pool   *nodes.Pool
	driver *nodes.Driver
	attach bool
}

// newEnvironment returns an environment on the shared nodes, with a sidecar beside its driver. With attach, the
// driver's volumes have to be attached.
func newEnvironment(t *testing.T, attach bool) *environment {
	t.Helper()
	nodes.SkipUnlessSupported(t)
	name := "n" + rand.String(5) + ".csi-reclaimer.io"
	env := &environment{Environment: fixture.NewWithoutDriver(t, name)}
	env.useNodes(startPool(t, env.Plane), name, attach)
	env.StartSidecar(fixture.FastRetries()...)
	env.T.Cleanup(env.removePods)
	return env
}

// useNodes starts a driver on the nodes.
func (env *environment) useNodes(pool *nodes.Pool, driver string, attach bool) {
	env.T.Helper()
	env.T.Cleanup(func() { pool.ShowLogs(env.T) })
	env.pool, env.attach = pool, attach
	env.driver = pool.DriverForTest(env.T, nodes.DriverOptions{Attach: attach,
		Options: mockdriver.Options{Name: driver, Args: []string{"--delete-published"}, Progress: os.Stderr}})
	env.AdoptDriver(env.driver.Driver)
}

// removePods heals the nodes and ends the test's pods there.
func (env *environment) removePods() {
	ctx := env.CleanupContext()
	for _, n := range env.pool.Nodes() {
		env.Must(n.Heal())
		env.cordon(ctx, n.Name(), false)
	}
	env.Must(env.Client.AppsV1().StatefulSets(env.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}))
	pods := env.Client.CoreV1().Pods(env.Namespace)
	env.Must(pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	for {
		list, err := pods.List(ctx, metav1.ListOptions{})
		env.Must(err)
		left := len(list.Items)
		for _, n := range env.pool.Nodes() {
			mounts, err := n.Mounts()
			env.Must(err)
			left += len(mounts)
		}
		if left == 0 {
			return
		}
		select {
		case <-ctx.Done():
			env.T.Errorf("%d pods and mounts are left", left)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// cordon has the scheduler send no pods to a node, or ends that.
func (env *environment) cordon(ctx context.Context, node string, is bool) {
	env.T.Helper()
	_, err := env.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, is), metav1.PatchOptions{})
	env.Must(err)
}

// writer makes a pod that writes to a claim on a node, past the scheduler.
func (env *environment) writer(name, node string, claim string) *objects.Pod {
	env.T.Helper()
	pod := env.CreatePod(objects.PodSpec{Name: name, Change: func(pod *v1.Pod) {
		pod.Spec = nodes.WriterSpec(claim)
		pod.Spec.NodeName = node
	}})
	return pod
}

// waitWritten waits until a pod has written to a volume so often from now on.
func (env *environment) waitWritten(volume *objects.Volume, pod types.UID, times int) {
	env.T.Helper()
	before, err := env.driver.Stamps(volume.Handle)
	env.Must(err)
	_, err = env.driver.WaitStamps(env.WithTimeout(), volume.Handle, func(all []stamps.Stamp) bool {
		return count(all, pod) >= count(before, pod)+times
	})
	env.Must(err)
}

func count(all []stamps.Stamp, pod types.UID) int {
	n := 0
	for _, s := range all {
		if s.Pod == pod {
			n++
		}
	}
	return n
}

// expectRuns checks whether a pod's container runs on a node.
func (env *environment) expectRuns(node string, pod types.UID, want bool) {
	env.T.Helper()
	runs, err := env.pool.Node(node).Runs(env.Ctx, pod)
	env.Must(err)
	if runs != want {
		all, err := env.pool.Node(node).Containers(env.Ctx)
		env.T.Errorf("pod %s runs on %s: %v, want %v; of %+v, %v", pod, node, runs, want, all, err)
	}
}

// expectNoOverlap checks that no two pods wrote to a volume at the same time.
func (env *environment) expectNoOverlap(volume *objects.Volume) {
	env.T.Helper()
	all, err := env.driver.Stamps(volume.Handle)
	env.Must(err)
	for _, o := range stamps.Overlaps(all) {
		env.T.Errorf("TWO WRITERS: %s", o)
	}
}

// expectNotDeletedInUse checks that no volume was to be deleted while it was attached or published, or staged on a node
// to which it was attached. Without attaching, nothing in the API shows whether a volume is staged: the kubelet deletes
// the pod once it is unpublished, and unstages the volume after that.
func (env *environment) expectNotDeletedInUse() {
	env.T.Helper()
	found, err := env.driver.DeletedInUse()
	env.Must(err)
	for _, d := range found {
		if d.Method == "NodeStageVolume" && !env.attach {
			env.T.Logf("before NodeUnstageVolume: %s", d)
			continue
		}
		env.T.Errorf("DELETED IN USE: %s", d)
	}
}

// waitPod waits for a pod of a name that is not the one of that UID.
func (env *environment) waitPod(name string, not types.UID) *v1.Pod {
	env.T.Helper()
	var found *v1.Pod
	env.Eventually("pod "+name+" is there", func() bool {
		pod, err := env.Client.CoreV1().Pods(env.Namespace).Get(env.Ctx, name, metav1.GetOptions{})
		found = pod
		return err == nil && pod.UID != not
	})
	return found
}

// waitClaimOf waits for a claim that a controller makes.
func (env *environment) waitClaimOf(name string) *objects.Claim {
	env.T.Helper()
	var found *objects.Claim
	env.Eventually("claim "+name+" is there", func() bool {
		claim, err := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).Get(env.Ctx, name, metav1.GetOptions{})
		if err == nil {
			found = env.ClaimOf(claim)
		}
		return err == nil
	})
	return found
}

// startWriter provisions a volume, and has a pod on the first node write to it.
func (env *environment) startWriter() (*objects.Pod, *objects.Claim, *fixture.Provisioned) {
	env.T.Helper()
	claim := env.CreateClaim(env.CreateStorageClass())
	volume := env.WaitBound(claim)
	pod := env.writer("writer", node1, claim.Name)
	env.waitWritten(volume.Volume, pod.UID, 5)
	return pod, claim, volume
}

// detachTimeout is above the minute in which the attach-detach controller notices that a pod is gone if its claim is
// gone, too (desiredStateOfWorldPopulator: its handler of the pod's deletion needs the claim).
const detachTimeout = 3 * time.Minute

// endWriter deletes the pod, and waits for the end of claim, PV and volume.
func (env *environment) endWriter(pod *objects.Pod, claim *objects.Claim, volume *fixture.Provisioned) {
	env.T.Helper()
	env.expectNoOverlap(volume.Volume)
	env.Must(pod.Delete(env.Ctx))
	env.Must(pod.WaitGone(env.WithTimeout()))
	env.expectRuns(node1, pod.UID, false)
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
	ctx, cancel := context.WithTimeout(env.Ctx, detachTimeout)
	defer cancel()
	env.Must(volume.WaitGone(ctx))
	env.ExpectDeleted(volume.Volume, 1)
	env.expectNotDeletedInUse()
}

// TestVolumeInUseIsDeletedAfterItsPod deletes claim and PV under a pod. The pod continues to write, and the volume is
// deleted once it is unmounted and detached.
func TestVolumeInUseIsDeletedAfterItsPod(t *testing.T) {
	for _, attach := range []bool{true, false} {
		t.Run(fmt.Sprintf("attached %v", attach), func(t *testing.T) {
			env := newEnvironment(t, attach)
			pod, claim, volume := env.startWriter()
			env.Must(volume.DeletePV(env.Ctx))
			env.MustDeleteClaim(claim)
			env.Barrier()
			env.waitWritten(volume.Volume, pod.UID, 20)
			env.ExpectKept(volume.Volume)
			env.WaitClaim(claim, "terminating", func(now *v1.PersistentVolumeClaim) bool {
				return now != nil && now.DeletionTimestamp != nil && now.Status.Phase == v1.ClaimBound
			})
			env.endWriter(pod, claim, volume)
		})
	}
}

// TestAttachedVolumeIsKeptWithoutItsClaim removes the protection finalizer of a claim, as people do. The claim is gone
// under the pod, and the PV is Released. The volume stays while it is attached, and is deleted afterwards.
func TestAttachedVolumeIsKeptWithoutItsClaim(t *testing.T) {
	env := newEnvironment(t, true)
	pod, claim, volume := env.startWriter()
	env.MustDeleteClaim(claim)
	env.removeFinalizers(env.Ctx, claim)
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
	env.WaitPV(volume.Volume, "released",
		func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	env.Barrier()
	env.waitWritten(volume.Volume, pod.UID, 20)
	env.ExpectKept(volume.Volume)
	env.endWriter(pod, claim, volume)
}

func (env *environment) removeFinalizers(ctx context.Context, claim *objects.Claim) {
	env.T.Helper()
	_, err := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).Patch(ctx, claim.Name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	env.Must(err)
}

// TestVolumeGuardKeepsClaimInUse disables the protection controllers of kube-controller-manager, on its own control
// plane and node.
func TestVolumeGuardKeepsClaimInUse(t *testing.T) {
	fixture.OwnVersions.Require(t)
	nodes.SkipUnlessSupported(t)
	const driver = "guard.csi-reclaimer.io"
	env := &environment{Environment: fixture.NewWithControlPlane(t, fixture.Version(), controlplane.Options{
		Controllers: []string{"*", "-persistentvolumeclaim-protection-controller", "-persistentvolume-protection-controller"},
	})}
	env.Must(rbac.GrantGuard(env.Ctx, env.Client, env.Namespace, fixture.VolumeGuardName))
	env.useNodes(nodes.ForTest(t, env.Plane, nodes.Options{Names: []string{node1}}), driver, false)
	g := guard.Environment{Environment: env.Environment}
	g.Start("--leader-election=false", "--controllers=*,pvc-protection,pv-protection", "--protection-patience=2s")
	env.T.Cleanup(env.removePods)

	volume := env.MakeVolume(objects.Spec{Policy: v1.PersistentVolumeReclaimRetain})
	bound, err := volume.Claim(env.Ctx)
	env.Must(err)
	claim := env.ClaimOf(bound)
	pod := env.writer("writer", node1, claim.Name)
	env.waitWritten(volume, pod.UID, 5)
	env.Must(volume.DeletePV(env.Ctx))
	env.MustDeleteClaim(claim)
	env.WaitClaimEvent(claim, "InUse", "Pod "+pod.Name)
	env.waitWritten(volume, pod.UID, 20)
	if now, err := claim.Get(env.Ctx); err != nil || now == nil || now.DeletionTimestamp == nil {
		t.Errorf("WRONG END: %v: claim %s is in use and %s", err, claim.Name, objects.DescribeClaim(now))
	}
	env.Must(pod.Delete(env.Ctx))
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
	if mounts, err := env.pool.Node(node1).Mounts(); err != nil || len(mounts) > 0 {
		t.Errorf("the claim is gone, and mounted are %+v, %v", mounts, err)
	}
	env.Must(volume.WaitGone(env.WithTimeout()))
}
