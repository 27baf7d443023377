//go:build linux

package nodes

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

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
	fixture.NewestOnly(t, fixture.OwnVersions)
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
