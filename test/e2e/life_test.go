//go:build unix

package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestWithoutTheSidecarTheVolumeLeaks shows that there is something to guard against.
func TestWithoutTheSidecarTheVolumeLeaks(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	vol := s.make(storage.Spec{})
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.expectKept(vol)
}

func TestPVsThatExistBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	before := map[*storage.Volume]*v1.PersistentVolume{}
	for i := range 12 {
		spec := storage.Spec{Dynamic: i%2 == 0, Unclaimed: i%3 == 0}
		if i%4 == 0 {
			spec.Policy = v1.PersistentVolumeReclaimRetain
		}
		vol := s.make(spec)
		if spec.Unclaimed {
			s.waitPV(vol, "available", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeAvailable })
		}
		pv, err := vol.PV(s.ctx)
		s.must(err)
		before[vol] = pv
	}
	s.sidecar()
	s.fence()
	for vol, was := range before {
		if must := was.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete && vol.Claimed; must {
			s.waitProtected(vol)
		}
		is, err := vol.PV(s.ctx)
		s.must(err)
		if got, want := protected(is), was.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete && vol.Claimed; got != want {
			t.Errorf("PV %s protected = %v, want %v: %s", vol.Name, got, want, storage.Describe(is))
		}
		for _, pv := range []*v1.PersistentVolume{was, is} {
			pv.Finalizers, pv.ManagedFields, pv.ResourceVersion = nil, nil, ""
		}
		if diff := cmp.Diff(was, is); diff != "" {
			t.Errorf("PV %s is changed beyond its finalizers:\n%s", vol.Name, diff)
		}
	}
}

func TestAPVDeletedBeforeItWasProtectedIsReported(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	vol := s.make(storage.Spec{})
	s.must(vol.DeletePV(s.ctx))
	s.sidecar()
	s.waitEvent(vol, "DeletionUnprotected", "")
	s.expectKept(vol)
}

// TestKilledAgainAndAgain kills the sidecar while volumes of both orders are deleted.
func TestKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(20 * time.Millisecond)},
	}}))
	const volumes = 24
	var vols, kept []*storage.Volume
	for range volumes {
		vol := s.make(storage.Spec{Dynamic: true})
		s.waitProtected(vol)
		vols = append(vols, vol)
	}
	for range 4 {
		kept = append(kept, s.make(storage.Spec{}))
	}
	var users sync.WaitGroup
	failed := make(chan error, 2*volumes)
	for i, vol := range vols {
		users.Go(func() {
			if i%2 == 0 {
				failed <- vol.DeletePV(s.ctx)
			}
			failed <- vol.DeleteClaim(s.ctx)
		})
	}
	for kills := range 5 {
		s.waitCalls(vols[0], 0)
		if err := car.WaitReady(s.soon()); err != nil {
			t.Fatalf("after %d kills: %v", kills, err)
		}
		car.Kill()
		s.must(car.Restart())
	}
	users.Wait()
	close(failed)
	for err := range failed {
		s.must(err)
	}
	for _, vol := range vols {
		s.must(vol.WaitGone(s.soon()))
		if s.onDisk(vol.Handle) {
			t.Errorf("LEAK: volume %s of PV %s is still on the driver's disk", vol.Handle, vol.Name)
		}
	}
	for _, vol := range kept {
		s.expectKept(vol)
	}
}

// TestTheFollowerFinishes kills the leader between the driver's work and the PV's release.
func TestTheFollowerFinishes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	replica := func(i int) []string {
		return append(eager(), "--leader-election", "--leader-election-namespace="+s.Namespace,
			fmt.Sprintf("--leader-election-identity=replica-%d", i), "--leader-election-lease-duration=3s",
			"--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms")
	}
	leader := s.sidecar(replica(1)...)
	s.must(leader.WaitLog(s.soon(), "Became the leader"))
	follower := s.sidecar(replica(2)...)
	vol := s.make(storage.Spec{})
	s.waitProtected(vol)
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", First: 1, Action: faults.Hang, AfterWork: true},
	}}))
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.DeleteClaim(s.ctx))
	ctx := s.soon()
	for s.onDisk(vol.Handle) {
		select {
		case <-ctx.Done():
			t.Fatal("the leader did not have the volume deleted")
		case <-time.After(5 * time.Millisecond):
		}
	}
	leader.Kill()
	s.must(follower.WaitLog(s.soon(), "Became the leader"))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 2)
}
