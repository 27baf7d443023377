//go:build unix

package volumeguard

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	protectpv "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// protectedObjects returns which claims and PVs of the cluster carry a finalizer of the protection.
func (env *environment) protectedObjects() (names []string) {
	env.T.Helper()
	claims, err := env.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	for i := range claims.Items {
		if slices.Contains(claims.Items[i].Finalizers, pvc.Finalizer) {
			names = append(names, claims.Items[i].Name)
		}
	}
	pvs, err := env.Client.CoreV1().PersistentVolumes().List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	for i := range pvs.Items {
		if slices.Contains(pvs.Items[i].Finalizers, protectpv.Finalizer) {
			names = append(names, pvs.Items[i].Name)
		}
	}
	return names
}

// TestReleaseOfInUseProtectionBlocksNoDeletion expects that no object stays in a cluster where no other program removes
// the finalizers: no object from before, none deleted during the release, and none deleted afterwards.
func TestReleaseOfInUseProtectionBlocksNoDeletion(t *testing.T) {
	t.Parallel()
	env := newWithVolumeGuard(t, fixture.Version(), unprotected())
	fakenode.ForTest(t, env.Plane, "node", fakenode.Config{})
	env.createUnresponsiveNode()
	flags := append(protecting(), shortLease()...)
	g := env.Start(flags...)

	meanwhile, later := env.inOtherNamespace(), env.inOtherNamespace()
	for _, users := range []*environment{meanwhile, later} {
		for _, node := range []string{"", "node"} {
			claim := users.CreateClaim("none")
			if node == "" {
				continue
			}
			_, err := users.createPodWithClaim(claim, node).WaitRunning(env.WithTimeout())
			env.Must(err)
		}
	}
	bound := env.MakeVolume(objects.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain})
	env.MakeVolume(objects.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain, Unclaimed: true})
	held := env.CreateClaim("none")
	pod := env.createPodWithClaim(held, unresponsiveNode)
	env.MustDeleteClaim(held)
	env.WaitClaimEvent(held, "InUse", "Pod "+pod.Name)

	env.Must(g.Terminate())
	output, err := env.ReleaseWhile(func(p *process.Process) {
		env.Must(p.WaitLog(env.WithTimeout(), "Checking whether another program manages the finalizer"))
		meanwhile.DeleteNamespace()
	}, flags...)
	meanwhile.WaitNamespaceGone()
	// One claim is in use by a pod without an end, and volume-guard reports it: without the finalizer the claim would be
	// gone under the pod.
	if err == nil || !strings.Contains(output, env.Namespace+"/"+held.Name+": InUse Pod "+pod.Name) {
		t.Errorf("released, with a claim that is in use and being deleted: %v, output %q", err, output)
	}
	if left := env.protectedObjects(); !slices.Equal(left, []string{held.Name}) {
		t.Errorf("the finalizer is on %q", left)
	}

	env.deletePodNow(pod.Name)
	if output, err = env.Release(flags...); err != nil || !strings.Contains(output,
		"1 claim was released from "+pvc.Finalizer) {
		t.Errorf("the second time: %v, output %q", err, output)
	}
	if left := env.protectedObjects(); len(left) > 0 {
		t.Errorf("the finalizer is on %q", left)
	}
	env.WaitClaim(held, "gone", fixture.ClaimIsGone)
	later.DeleteNamespace()
	later.WaitNamespaceGone()
	env.Must(bound.DeleteClaim(env.Ctx))
	env.Must(bound.DeletePV(env.Ctx))
	env.Must(bound.WaitGone(env.WithTimeout()))
}

// expectNothingToRelease has the protection be released where Kubernetes' own controllers do it.
func (env *environment) expectNothingToRelease(args ...string) {
	env.T.Helper()
	vol := env.MakeVolume(objects.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain, Unclaimed: true})
	users := env.inOtherNamespace()
	claim := users.CreateClaim("none")
	env.createPodWithClaim(env.CreateClaim("none"), "node")
	// Kubernetes' own controller keeps this claim until the pod is deleted, so the claim proves nothing about it.
	ended := env.CreateClaim("none")
	done := env.createPodWithClaim(ended, unresponsiveNode)
	env.setPodPhase(done, v1.PodSucceeded)
	env.MustDeleteClaim(ended)
	output, err := env.Release(args...)
	env.Must(err)
	for _, stays := range []string{pvc.Finalizer + " stays on 3 claims", protectpv.Finalizer + " stays on 1 PV"} {
		if !strings.Contains(output, stays+": another controller manages it") {
			env.T.Errorf("output %q, want %q", output, stays)
		}
	}
	// One of each lost it, which is how the others were found out, and has it again.
	env.Eventually("all carry it", func() bool { return len(env.protectedObjects()) == 4 })
	// The program has ended: no more come.
	if writes := env.WritesTo(2, "persistentvolumeclaims", "persistentvolumes"); len(writes) != 2 {
		env.T.Errorf("%d writes: %+v", len(writes), writes)
	}
	env.deletePodNow(done.Name)
	env.WaitClaim(ended, "gone", fixture.ClaimIsGone)
	users.DeleteNamespace()
	users.WaitNamespaceGone()
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
}
