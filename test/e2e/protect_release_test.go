//go:build unix

package e2e

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	protectpv "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// stillProtected returns which claims and PVs of the cluster carry a finalizer of the protection.
func (s *stage) stillProtected() (names []string) {
	s.t.Helper()
	claims, err := s.client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(s.ctx, metav1.ListOptions{})
	s.must(err)
	for i := range claims.Items {
		if slices.Contains(claims.Items[i].Finalizers, pvc.Finalizer) {
			names = append(names, claims.Items[i].Name)
		}
	}
	pvs, err := s.client.CoreV1().PersistentVolumes().List(s.ctx, metav1.ListOptions{})
	s.must(err)
	for i := range pvs.Items {
		if slices.Contains(pvs.Items[i].Finalizers, protectpv.Finalizer) {
			names = append(names, pvs.Items[i].Name)
		}
	}
	return names
}

// TestNothingIsHeldOnceTheProtectionIsReleased, where nobody else would let it go: neither what is there, nor what is deleted
// meanwhile, nor what is deleted afterwards.
func TestNothingIsHeldOnceTheProtectionIsReleased(t *testing.T) {
	t.Parallel()
	s := newGuardStage(t, version, unprotected())
	fakenode.ForTest(t, s.plane, "node", fakenode.Config{})
	_, err := s.client.CoreV1().Nodes().Create(s.ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: mute}}, metav1.CreateOptions{})
	s.must(err)
	flags := append(protecting(), shortLease()...)
	g := s.guard(flags...)

	meanwhile, later := s.elsewhere(), s.elsewhere()
	for _, users := range []*stage{meanwhile, later} {
		for _, node := range []string{"", "node"} {
			claim := users.claim("none")
			if node == "" {
				continue
			}
			_, err := users.podWith(claim, node).WaitRunning(s.soon())
			s.must(err)
		}
	}
	bound := s.make(storage.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain})
	s.make(storage.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain, Unclaimed: true})
	held := s.claim("none")
	pod := s.podWith(held, mute)
	s.deleteClaim(held)
	s.waitTold(held, "InUse", "Pod "+pod.Name)

	s.must(g.Terminate())
	said, err := s.releaseGuardWhile(func(p *process.Process) {
		s.must(p.WaitLog(s.soon(), "Looking whether anybody else manages the finalizer"))
		meanwhile.deleteNamespace()
	}, flags...)
	meanwhile.waitNamespaceGone()
	// One claim is in use by a pod that nobody ends, and that is said: without the finalizer it would be gone under the pod.
	if err == nil || !strings.Contains(said, s.Namespace+"/"+held.Name+": InUse Pod "+pod.Name) {
		t.Errorf("released, with a claim that is in use and being deleted: %v, said %q", err, said)
	}
	if left := s.stillProtected(); !slices.Equal(left, []string{held.Name}) {
		t.Errorf("the finalizer is on %q", left)
	}

	s.force(pod.Name)
	if said, err = s.releaseGuard(flags...); err != nil || !strings.Contains(said, "1 claims were released from "+pvc.Finalizer) {
		t.Errorf("the second time: %v, said %q", err, said)
	}
	if left := s.stillProtected(); len(left) > 0 {
		t.Errorf("the finalizer is on %q", left)
	}
	s.waitClaim(held, "gone", noClaim)
	later.deleteNamespace()
	later.waitNamespaceGone()
	s.must(bound.DeleteClaim(s.ctx))
	s.must(bound.DeletePV(s.ctx))
	s.must(bound.WaitGone(s.soon()))
}

// releaseNothing has the protection be released where Kubernetes' own controllers do it.
func (s *stage) releaseNothing(args ...string) {
	s.t.Helper()
	vol := s.make(storage.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain, Unclaimed: true})
	users := s.elsewhere()
	claim := users.claim("none")
	s.podWith(s.claim("none"), "node")
	said, err := s.releaseGuard(args...)
	s.must(err)
	for _, stays := range []string{pvc.Finalizer + " stays on 2 claims", protectpv.Finalizer + " stays on 1 PVs"} {
		if !strings.Contains(said, stays+": another controller was seen to manage it") {
			s.t.Errorf("said %q, want %q", said, stays)
		}
	}
	// One of each lost it, which is how the others were found out, and has it again.
	s.eventually("all carry it", func() bool { return len(s.stillProtected()) == 3 })
	if writes := s.settledWritesTo(2, "persistentvolumeclaims", "persistentvolumes"); len(writes) != 2 {
		s.t.Errorf("%d writes: %+v", len(writes), writes)
	}
	users.deleteNamespace()
	users.waitNamespaceGone()
	s.waitClaim(claim, "gone", noClaim)
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.WaitGone(s.soon()))
}
