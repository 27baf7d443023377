//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestPVsThatExistBeforeTheFirstStart is the upgrade of a cluster with 1,000 PVs.
func TestPVsThatExistBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	must := func(i int) bool { return i%4 != 0 && i%3 != 0 }
	vols := s.makeMany(size(1000, 120), func(i int) storage.Spec {
		// The volumes behind are not looked at: their handles will do.
		spec := storage.Spec{Dynamic: i%2 == 0, Unclaimed: i%3 == 0, Handle: "vol-" + strconv.Itoa(i)}
		if i%4 == 0 {
			spec.Policy = v1.PersistentVolumeReclaimRetain
		}
		return spec
	})
	for i, vol := range vols {
		if i%3 == 0 {
			s.waitPV(vol, "available", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeAvailable })
		}
	}
	before := s.allPVs()
	began := time.Now()
	s.sidecar()
	for i, vol := range vols {
		if must(i) {
			s.waitProtected(vol)
		}
	}
	t.Logf("all are protected %v after the start", time.Since(began).Round(time.Millisecond))
	s.fence()
	after := s.allPVs()
	for i, vol := range vols {
		was, is := before[vol.Name], after[vol.Name]
		if got := protected(is); got != must(i) {
			t.Errorf("PV %s protected = %v, want %v: %s", vol.Name, got, must(i), storage.Describe(is))
		}
		for _, pv := range []*v1.PersistentVolume{was, is} {
			pv.Finalizers, pv.ManagedFields, pv.ResourceVersion = nil, nil, ""
		}
		if diff := cmp.Diff(was, is); diff != "" {
			t.Errorf("PV %s is changed beyond its finalizers:\n%s", vol.Name, diff)
		}
	}
}

// allPVs returns all PVs by name.
func (s *stage) allPVs() map[string]*v1.PersistentVolume {
	s.t.Helper()
	list, err := s.client.CoreV1().PersistentVolumes().List(s.ctx, metav1.ListOptions{})
	s.must(err)
	byName := map[string]*v1.PersistentVolume{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName
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

// TestKilledAgainAndAgain kills the sidecar while many volumes are deleted in both orders.
func TestKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	vols := s.makeMany(size(500, 80), func(i int) storage.Spec { return storage.Spec{Dynamic: i%4 < 2} })
	kept := s.makeMany(20, func(i int) storage.Spec {
		return storage.Spec{Dynamic: i%2 == 0, Policy: v1.PersistentVolumeReclaimRetain}
	})
	bound := s.makeMany(20, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
	s.waitAll(append(slices.Clone(vols), bound...), "protected", isProtected)
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(50 * time.Millisecond)},
	}}))
	order := map[*storage.Volume]bool{}
	for i, vol := range vols {
		order[vol] = i%2 == 0
	}
	var users sync.WaitGroup
	users.Go(func() {
		s.all(append(slices.Clone(vols), kept...), func(vol *storage.Volume) error {
			if order[vol] {
				if err := vol.DeletePV(s.ctx); err != nil {
					return err
				}
			}
			return vol.DeleteClaim(s.ctx)
		})
	})
	kills := 0
	for left := len(vols); left > 0; {
		s.must(car.WaitReady(s.soon()))
		// Let it do some work, then kill it in the middle of more.
		goal := len(s.deletionsAll()) + len(vols)/10
		s.eventually("work goes on", func() bool {
			left = 0
			for _, pv := range s.allPVs() {
				if pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete && pv.Spec.CSI.Driver == s.Driver {
					left++
				}
			}
			left -= len(bound)
			return left == 0 || len(s.deletionsAll()) >= goal
		})
		if left > 0 {
			car.Kill()
			s.must(car.Restart())
			kills++
		}
	}
	users.Wait()
	s.waitAll(vols, "gone", isGone)
	disk, calls := s.onDiskAll(), s.deletionsAll()
	total := 0
	for _, vol := range vols {
		if disk[vol.Handle] {
			t.Errorf("LEAK: volume %s of PV %s is still on the driver's disk", vol.Handle, vol.Name)
		}
		total += calls[vol.Handle]
	}
	for _, vol := range append(kept, bound...) {
		s.expectKept(vol)
	}
	t.Logf("killed %d times; %d volumes deleted by %d DeleteVolume calls; %d kept", kills, len(vols), total, len(kept)+len(bound))
	if kills < 3 {
		t.Errorf("killed %d times only", kills)
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
