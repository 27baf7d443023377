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
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
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
	fixture.NewestOnly(t, fixture.OwnVersions)
	t.Parallel()
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

	output, err := env.Release(shortLease()...)
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
	if output, err = env.Release(shortLease()...); err != nil || !strings.Contains(output,
		"0 in-tree PVs were released") {
		t.Errorf("the second time: %v, %q", err, output)
	}
	for _, vol := range vols {
		env.WaitPV(vol, "without our finalizer", free)
	}

	env.Must(env.Client.CoordinationV1().Leases(env.Namespace).Delete(env.Ctx, fixture.VolumeGuardName,
		metav1.DeleteOptions{}))
	env.WaitAllPVs(vols[1:], "protected again", guarded)

	users := env.inOtherNamespace()
	inTree := []*objects.Volume{users.inTreeVolume(class), users.inTreeVolume(class), users.inTreeVolume(class)}
	env.WaitAllPVs(inTree, "protected", guarded)
	users.DeleteNamespace()
	_, err = env.Release(shortLease()...)
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
	fixture.NewestOnly(t, fixture.OwnVersions)
	t.Parallel()
	env := newWithControlPlane(t, controlplane.Newest, controlplane.Options{})
	rules, err := rbac.GrantGuardReleasing(env.Ctx, env.Client, env.Namespace, fixture.VolumeGuardName)
	env.Must(err)
	api := env.Client.AdmissionregistrationV1()
	_, err = api.MutatingAdmissionPolicies().Create(env.Ctx,
		admission.Policy(volume.RoleOwner, env.Driver, "other.csi.example.com"), metav1.CreateOptions{})
	env.Must(err)
	_, err = api.MutatingAdmissionPolicyBindings().Create(env.Ctx, admission.Binding(volume.RoleOwner),
		metav1.CreateOptions{})
	env.Must(err)
	// The webhook does not answer, and blocks no request.
	hooks := admission.PVWebhooks(admission.Service{Namespace: env.Namespace, Name: "none"},
		admission.Drivers{volume.RoleOwner: {"other.csi.example.com"}})
	_, err = api.MutatingWebhookConfigurations().Create(env.Ctx, hooks, metav1.CreateOptions{})
	env.Must(err)
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
	if !strings.Contains(output, "10 PVs of the drivers "+env.Driver+", other.csi.example.com were released") {
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
