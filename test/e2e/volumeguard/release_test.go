//go:build unix

package volumeguard

import (
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	protectpv "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// shortLease has a replica notice within seconds that another one leads. It is long enough to be renewed on a busy
// machine, see fixture.ReplicaFlags.
func shortLease() []string { return fixture.ReplicaLease() }

func guarded(pv *v1.PersistentVolume) bool {
	return pv != nil && slices.Contains(pv.Finalizers, intree.Finalizer)
}

// TestVolumeGuardReleaseWhileReplicaRuns acts as an installer's pre-delete hook.
func TestVolumeGuardReleaseWhileReplicaRuns(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newWithVolumeGuard(t, controlplane.V1_30, controlplane.Options{HostPathProvisioner: true})
	env.Driver = "kubernetes.io/host-path"
	g := env.Start(shortLease()...)
	class := env.CreateStorageClass()
	vols := make([]*objects.Volume, 10)
	for i := range vols {
		vols[i] = env.inTreeVolume(class)
	}
	env.WaitAllPVs(vols, "protected", guarded)
	env.Must(vols[0].DeletePV(env.Ctx)) // its volume is abandoned, and that is reported

	output, err := env.Release(append(shortLease(), "--controllers=*")...)
	env.Must(err)
	if !strings.Contains(output, "10 in-tree PVs were released") || !strings.Contains(output,
		"PV "+vols[0].Name+" was being deleted") {
		t.Errorf("output %q", output)
	}
	// The replica's actions as the leader came before.
	<-g.Done()
	free := func(pv *v1.PersistentVolume) bool { return pv != nil && !guarded(pv) }
	env.Must(g.Restart())
	env.Must(g.WaitLog(env.WithTimeout(), "Waiting for the lease"))
	env.Must(g.WaitReady(env.WithTimeout()))
	if output, err = env.Release(append(shortLease(), "--controllers=*")...); err != nil || !strings.Contains(output,
		"0 in-tree PVs were released") {
		t.Errorf("the second time: %v, %q", err, output)
	}
	for _, vol := range vols {
		env.WaitPV(vol, "without our finalizer", free)
	}

	env.Leases().Delete(fixture.VolumeGuardName)
	env.WaitAllPVs(vols[1:], "protected again", guarded)

	users := env.inOtherNamespace()
	inTree := []*objects.Volume{users.inTreeVolume(class), users.inTreeVolume(class), users.inTreeVolume(class)}
	env.WaitAllPVs(inTree, "protected", guarded)
	users.DeleteNamespace()
	_, err = env.Release(append(shortLease(), "--controllers=*")...)
	env.Must(err)
	<-g.Done()
	env.Must(g.Restart())
	users.WaitNamespaceGone()
	env.WaitAllPVs(vols, "without our finalizer", free)
	env.WaitAllPVs(inTree, "gone", fixture.IsGone)
}

// inTreeVolume creates a volume of the class. Its folder is removed after the test.
func (env *environment) inTreeVolume(class string) *objects.Volume {
	env.T.Helper()
	vol := env.WaitBound(env.CreateClaim(class))
	env.T.Cleanup(func() { _ = os.RemoveAll(vol.BoundPV.Spec.HostPath.Path) })
	return vol.Volume
}

// In TestReleaseDriversWithAdmissionPolicyInForce, the policy adds each finalizer again in the write that removes it,
// for as long as the driver is listed.
func TestReleaseDriversWithAdmissionPolicyInForce(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newWithControlPlane(t, controlplane.Newest, controlplane.Options{})
	rules, err := rbac.GrantGuardReleasing(env.Ctx, env.Client, env.Namespace, fixture.VolumeGuardName)
	env.Must(err)
	env.CreateAdmissionPolicy(admission.Policy(volume.RoleOwner, env.Driver, "other.csi.example.com"))
	// The webhook does not answer, and blocks no request.
	hooks := admission.PVWebhooks(admission.Service{Namespace: env.Namespace, Name: "none"},
		admission.Drivers{volume.RoleOwner: {"other.csi.example.com"}})
	env.MutatingWebhookConfigurations().Create(hooks)
	vols := env.MakeVolumes(10, func(i int) objects.Spec { return objects.Spec{Handle: "none", Dynamic: i%2 == 0} })
	env.Eventually("the policy is in force", func() bool {
		for _, vol := range vols {
			env.AnnotatePV(vol, "touched", "again")
		}
		return !slices.ContainsFunc(vols,
			func(vol *objects.Volume) bool { return !fixture.IsProtected(env.ListPVs()[vol.Name]) })
	})
	env.RemoveFinalizers(vols[0])
	env.WaitProtected(vols[0]) // the write that removed it was a success

	output, err := env.Release("--release-drivers=*")
	env.Must(err)
	if !strings.Contains(output, "10 PVs of the drivers "+env.Driver+", other.csi.example.com were released") ||
		strings.Contains(output, "in-tree") || strings.Contains(output, "No replica") {
		t.Errorf("output %q", output)
	}
	env.ExpectUsed(slices.DeleteFunc(fixture.Rights(rules), func(right string) bool {
		return !strings.Contains(right, " mutatingadmissionpolicies.") &&
			!strings.Contains(right, " mutatingwebhookconfigurations.")
	}))
	for _, vol := range vols {
		env.AnnotatePV(vol, "touched", "after")
	}
	env.WaitAllPVs(vols, "without our finalizer", fixture.WithoutFinalizer)
}

// protectedObjects returns which claims and PVs of the cluster carry a finalizer of the protection.
func (env *environment) protectedObjects() (names []string) {
	env.T.Helper()
	for _, claim := range env.InNamespace(metav1.NamespaceAll).Claims().List() {
		if slices.Contains(claim.Finalizers, pvc.Finalizer) {
			names = append(names, claim.Name)
		}
	}
	for _, pv := range env.PVs().List() {
		if slices.Contains(pv.Finalizers, protectpv.Finalizer) {
			names = append(names, pv.Name)
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
			env.WaitRunning(users.createPodWithClaim(claim, node))
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
