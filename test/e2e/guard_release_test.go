//go:build unix

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// shortLease has a replica notice within seconds that another one leads.
func shortLease() []string {
	return []string{"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms"}
}

// releaseGuard runs volume-guard --release-finalizers to its end.
func (s *stage) releaseGuard(args ...string) (said string, err error) {
	s.t.Helper()
	return s.releaseGuardWhile(func(*process.Process) {}, args...)
}

// releaseGuardWhile does so while something else is done.
func (s *stage) releaseGuardWhile(do func(*process.Process), args ...string) (said string, err error) {
	s.t.Helper()
	binary, err := guardProgram()
	s.must(err)
	var out strings.Builder
	p, err := process.Start(process.Command{Path: binary, Stdout: &out, Args: append([]string{
		"--kubeconfig=" + s.kube, "--leader-election-namespace=" + s.Namespace, "--release-finalizers",
	}, args...)})
	s.must(err)
	defer p.Close()
	do(p)
	select {
	case <-p.Done():
	case <-s.soon().Done():
		s.t.Fatalf("--release-finalizers does not end:\n%s", p.LogTail(20))
	}
	return out.String() + p.LogTail(3), p.Err()
}

func guarded(pv *v1.PersistentVolume) bool {
	return pv != nil && slices.Contains(pv.Finalizers, intree.Finalizer)
}

// TestVolumeGuardIsReleasedWhileAReplicaRuns, which a hook of an installer has to.
func TestVolumeGuardIsReleasedWhileAReplicaRuns(t *testing.T) {
	t.Parallel()
	s := newGuardStage(t, controlplane.V1_30, controlplane.Options{HostPathProvisioner: true})
	s.Driver = "kubernetes.io/host-path"
	g := s.guard(shortLease()...)
	class := s.class()
	vols := make([]*storage.Volume, 10)
	for i := range vols {
		vols[i] = s.inTreeVolume(class)
	}
	s.waitAll(vols, "protected", guarded)
	s.must(vols[0].DeletePV(s.ctx)) // its volume is abandoned, and that is said

	said, err := s.releaseGuard(shortLease()...)
	s.must(err)
	if !strings.Contains(said, "10 in-tree PVs were released") || !strings.Contains(said, "PV "+vols[0].Name+" was being deleted") {
		t.Errorf("said %q", said)
	}
	// What the replica did while it still led came before.
	<-g.Done()
	free := func(pv *v1.PersistentVolume) bool { return pv != nil && !guarded(pv) }
	s.must(g.Restart())
	s.must(g.WaitLog(s.soon(), "Waiting for the lease"))
	s.must(g.WaitReady(s.soon()))
	if said, err = s.releaseGuard(shortLease()...); err != nil || !strings.Contains(said, "0 in-tree PVs were released") {
		t.Errorf("the second time: %v, %q", err, said)
	}
	for _, vol := range vols {
		s.waitPV(vol, "without our finalizer", free)
	}

	s.must(s.client.CoordinationV1().Leases(s.Namespace).Delete(s.ctx, guardName, metav1.DeleteOptions{}))
	s.waitAll(vols[1:], "protected again", guarded)

	users := s.elsewhere()
	going := []*storage.Volume{users.inTreeVolume(class), users.inTreeVolume(class), users.inTreeVolume(class)}
	s.waitAll(going, "protected", guarded)
	users.deleteNamespace()
	_, err = s.releaseGuard(shortLease()...)
	s.must(err)
	<-g.Done()
	s.must(g.Restart())
	users.waitNamespaceGone()
	s.waitAll(vols, "without our finalizer", free)
	s.waitAll(going, "gone", isGone)
}

// inTreeVolume makes a volume of the class, whose folder goes with the test.
func (s *stage) inTreeVolume(class string) *storage.Volume {
	s.t.Helper()
	vol := s.bound(s.claim(class))
	s.t.Cleanup(func() { _ = os.RemoveAll(vol.pv.Spec.HostPath.Path) })
	return vol.Volume
}

// TestTheFinalizersOfDriversAreReleasedWithThePolicyOn, which puts each back in the write that takes it off for as
// long as the driver is listed.
func TestTheFinalizersOfDriversAreReleasedWithThePolicyOn(t *testing.T) {
	t.Parallel()
	s := newGuardPlane(t, controlplane.V1_36, controlplane.Options{})
	rules, err := grant.GuardReleasing(s.ctx, s.client, s.Namespace, guardName)
	s.must(err)
	api := s.client.AdmissionregistrationV1()
	_, err = api.MutatingAdmissionPolicies().Create(s.ctx, admission.Policy(volume.RoleOwner, s.Driver, "other.csi.example.com"), metav1.CreateOptions{})
	s.must(err)
	_, err = api.MutatingAdmissionPolicyBindings().Create(s.ctx, admission.Binding(volume.RoleOwner), metav1.CreateOptions{})
	s.must(err)
	// It does not answer, and stands in nobody's way.
	hooks := admission.PVWebhooks(admission.Service{Namespace: s.Namespace, Name: "none"}, admission.Drivers{volume.RoleOwner: {"other.csi.example.com"}})
	_, err = api.MutatingWebhookConfigurations().Create(s.ctx, hooks, metav1.CreateOptions{})
	s.must(err)
	vols := s.makeMany(10, func(i int) storage.Spec { return storage.Spec{Handle: "none", Dynamic: i%2 == 0} })
	s.eventually("the policy is in force", func() bool {
		for _, vol := range vols {
			s.annotate(vol, "touched", "again")
		}
		return !slices.ContainsFunc(vols, func(vol *storage.Volume) bool { return !isProtected(s.allPVs()[vol.Name]) })
	})
	s.strip(vols[0])
	s.waitProtected(vols[0]) // the write that took it off was a success

	said, err := s.releaseGuard("--release-drivers=*")
	s.must(err)
	if !strings.Contains(said, "10 PVs of the drivers "+s.Driver+", other.csi.example.com were released") {
		t.Errorf("said %q", said)
	}
	s.expectUsed(rules, "mutatingadmissionpolicies", "mutatingwebhookconfigurations")
	for _, vol := range vols {
		s.annotate(vol, "touched", "after")
	}
	s.waitAll(vols, "without our finalizer", isFree)
}
