//go:build unix

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/peer"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// peer starts a provisioner that is not ours, with an account of its own. It returns the
// account's name.
func (s *stage) peer(addFinalizer bool, args ...string) string {
	s.t.Helper()
	account, _ := s.startPeer(addFinalizer, args...)
	return account
}

// startPeer also returns the means to stop it before the test ends.
func (s *stage) startPeer(addFinalizer bool, args ...string) (user string, stop func()) {
	s.t.Helper()
	const account = "peer"
	config, err := cluster.ServiceAccount(s.ctx, s.Namespace, account)
	s.must(err)
	kubeconfig := filepath.Join(s.t.TempDir(), "kubeconfig")
	s.must(controlplane.WriteKubeconfig(kubeconfig, config))
	s.must(peer.Grant(s.ctx, s.client, s.Namespace, account))
	s.t.Cleanup(func() {
		name := s.Namespace + "-" + account
		_ = s.client.RbacV1().ClusterRoleBindings().Delete(s.clean(), name, metav1.DeleteOptions{})
		_ = s.client.RbacV1().ClusterRoles().Delete(s.clean(), name, metav1.DeleteOptions{})
	})
	p, err := peer.Start(s.ctx, peer.Options{Address: s.driver.Socket(), Kubeconfig: kubeconfig, AddFinalizer: addFinalizer, Args: args})
	s.must(err)
	stop = sync.OnceFunc(func() {
		if s.t.Failed() {
			s.t.Logf("log of the peer:\n%s", p.LogTail(30))
		}
		if err := p.Stop(); err != nil {
			s.t.Errorf("stop the peer: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return "system:serviceaccount:" + s.Namespace + ":" + account, stop
}

// writes counts the writes of a user to PVs of this prefix, by verb.
func (s *stage) writes(user string, vols []*storage.Volume) map[string]int {
	s.t.Helper()
	names := map[string]bool{}
	for _, vol := range vols {
		names[vol.Name] = true
	}
	events, err := cluster.AuditEventsOf(user, func(e controlplane.AuditEvent) bool {
		return e.Resource == "persistentvolumes" && names[e.Name] && !slices.Contains([]string{"get", "list", "watch"}, e.Verb)
	})
	s.must(err)
	count := map[string]int{}
	for _, e := range events {
		count[e.Verb]++
	}
	return count
}

// TestACompanionBesideAProvisionerWithoutTheFinalizer has both work on the same PVs.
func TestACompanionBesideAProvisionerWithoutTheFinalizer(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "companion", mockdriver.Options{})
	other := s.peer(false)
	car := s.sidecar(append(eager(), "--role=companion")...)
	const each = 20
	pvFirst := s.makeMany(each, func(int) storage.Spec { return storage.Spec{Dynamic: true} })
	claimFirst := s.makeMany(each, func(int) storage.Spec { return storage.Spec{Dynamic: true} })
	kept := s.makeMany(2, func(int) storage.Spec { return storage.Spec{Dynamic: true, Policy: v1.PersistentVolumeReclaimRetain} })
	// One that still carries the owner's finalizer, which the peer takes off.
	former := s.make(storage.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) { pv.Finalizers = []string{volume.Finalizer} }})
	all := append(slices.Concat(pvFirst, claimFirst), former)
	s.waitAll(all, "protected by the companion alone", func(pv *v1.PersistentVolume) bool {
		return pv != nil && companionProtected(pv) && !protected(pv)
	})
	s.all(pvFirst, func(vol *storage.Volume) error { return vol.DeletePV(s.ctx) })
	s.all(append(slices.Concat(pvFirst, claimFirst), kept...), func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(append(slices.Clone(pvFirst), claimFirst...), "gone", isGone)
	disk, calls := s.onDiskAll(), s.deletionsAll()
	repeated := 0
	for _, vol := range pvFirst {
		if disk[vol.Handle] || calls[vol.Handle] != 1 {
			t.Errorf("PV first %s: on disk %v, %d DeleteVolume calls, want 1", vol.Name, disk[vol.Handle], calls[vol.Handle])
		}
	}
	for _, vol := range claimFirst {
		if n := calls[vol.Handle]; disk[vol.Handle] || n < 1 {
			t.Errorf("claim first %s: on disk %v, %d DeleteVolume calls", vol.Name, disk[vol.Handle], n)
		}
		repeated += calls[vol.Handle] - 1
	}
	for _, vol := range append(kept, former) {
		s.expectKept(vol)
	}
	ours, theirs := s.writes(s.user, all), s.writes(other, all)
	t.Logf("%d volumes of each order: %d DeleteVolume calls repeated beside the peer; our writes %v, the peer's %v", each, repeated, ours, theirs)
	if ours["delete"] != 0 || ours["patch"] > 2*len(all) {
		t.Errorf("our writes: %v, want at most two patches for each of %d PVs", ours, len(all))
	}
	metrics, err := car.Get(s.ctx, "/metrics")
	s.must(err)
	if !strings.Contains(metrics, "csi_reclaimer_repeated_deletions_total") {
		t.Error("repeated deletions are not counted")
	}
}

// TestARoleIsChangedAndChangedBack has PVs pass from an owner to a companion and back.
func TestARoleIsChangedAndChangedBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	vols := s.makeMany(6, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
	s.waitAll(vols, "protected by the owner", isProtected)
	restart := func(role string) {
		s.must(car.Terminate())
		s.must(car.Restart("--role=" + role))
		s.must(car.WaitReady(s.soon()))
	}
	restart("companion")
	s.waitAll(vols, "protected by the companion", func(pv *v1.PersistentVolume) bool { return pv != nil && companionProtected(pv) })
	s.must(vols[0].DeletePV(s.ctx)) // terminating on the way
	restart("owner")
	s.waitAll(vols[1:], "adopted by the owner", func(pv *v1.PersistentVolume) bool {
		return pv != nil && protected(pv) && !companionProtected(pv)
	})
	s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(vols, "gone", isGone)
	for _, vol := range vols {
		s.expectDeleted(vol, 1)
	}
}

// TestAnObserverBesideAProvisionerThatHonoursThePolicy leaves everything to the peer.
func TestAnObserverBesideAProvisionerThatHonoursThePolicy(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "observer", mockdriver.Options{})
	s.peer(true)
	s.sidecar("--role=observer")
	vols := s.makeMany(20, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
	s.waitAll(vols, "protected by the peer", isProtected)
	s.all(vols[:10], func(vol *storage.Volume) error { return vol.DeletePV(s.ctx) })
	s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(vols, "gone", isGone)
	disk := s.onDiskAll()
	for _, vol := range vols {
		if disk[vol.Handle] {
			t.Errorf("LEAK: volume %s", vol.Handle)
		}
		if told := s.events(vol, "VolumeLeftBehind"); len(told) != 0 {
			t.Errorf("a false alarm about %s: %s", vol.Name, told[0].Message)
		}
	}
	s.expectNoWrites("events")
}

// expectNoWrites checks that csi-reclaimer has written nothing, but to these resources.
func (s *stage) expectNoWrites(but ...string) {
	s.t.Helper()
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Resource != "selfsubjectaccessreviews" && !slices.Contains(but, e.Resource) && !slices.Contains([]string{"get", "list", "watch"}, e.Verb)
	})
	s.must(err)
	if len(events) != 0 {
		s.t.Errorf("it wrote: %+v", events)
	}
}

// TestAnObserverAndThePeersRace turns policies and deletes PVs at once, which the peer loses.
func TestAnObserverAndThePeersRace(t *testing.T) {
	for reclaims, want := range map[string]string{"--reclaim-unprotected=true": "UnprotectedReclaim", "--reclaim-unprotected=false": "VolumeLeftBehind"} {
		t.Run(reclaims, func(t *testing.T) {
			t.Parallel()
			s := newStageAs(t, "observer", mockdriver.Options{})
			s.peer(true)
			s.sidecar(append(eager(), "--role=observer", reclaims)...)
			vols := s.makeMany(10, func(int) storage.Spec { return storage.Spec{Policy: v1.PersistentVolumeReclaimRetain} })
			s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
			s.waitAll(vols, "released", isReleased)
			for _, vol := range vols {
				s.must(vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimDelete))
				s.must(s.deletePV(vol))
			}
			s.waitAll(vols, "gone", isGone)
			lost := 0
			for _, vol := range vols {
				ctx := s.soon()
				for {
					leaked, told := s.onDisk(vol.Handle), len(s.events(vol, want)) > 0
					if told {
						lost++
					}
					if told || !leaked {
						break // what the peer deleted is no news
					}
					if ctx.Err() != nil {
						t.Fatalf("volume %s of PV %s is left, and nobody says so", vol.Handle, vol.Name)
					}
				}
			}
			t.Logf("the peer lost %d of %d races", lost, len(vols))
			if want != "UnprotectedReclaim" {
				return
			}
			for _, vol := range vols {
				if s.onDisk(vol.Handle) {
					t.Errorf("LEAK: volume %s", vol.Handle)
				}
			}
		})
	}
}
