//go:build unix

package reclaim

import (
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestSIGTERMWaitsForDeletionInProgress(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar("--leader-election", "--leader-election-namespace="+env.Namespace)
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol)
	env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(2 * time.Second)},
	}}))
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(vol, 1)
	env.Must(car.Terminate())
	// No other program removes the finalizer.
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
	lease, err := env.Client.CoordinationV1().Leases(env.Namespace).List(env.Ctx,
		metav1.ListOptions{LabelSelector: "!" + inflight.LabelLog})
	env.Must(err)
	if len(lease.Items) != 1 || (lease.Items[0].Spec.HolderIdentity != nil && *lease.Items[0].Spec.HolderIdentity != "") {
		t.Errorf("the Lease was not given up: %+v", lease.Items)
	}
}

// TestVolumeLeaksWithoutSidecar shows the leak that csi-reclaimer prevents.
func TestVolumeLeaksWithoutSidecar(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	vol := env.MakeVolume(objects.Spec{})
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectKept(vol)
}

func TestPVDeletedBeforeProtectionIsReported(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	vol := env.MakeVolume(objects.Spec{})
	env.Must(vol.DeletePV(env.Ctx))
	env.StartSidecar()
	env.WaitPVEvent(vol, "DeletionUnprotected", "")
	env.ExpectKept(vol)
}

// TestSidecarKilledRepeatedlyDeletesEachVolume kills the sidecar while many volumes are deleted in both orders. The
// driver does not answer some calls, so that no sidecar deletes all of them before it is killed.
func TestSidecarKilledRepeatedlyDeletesEachVolume(t *testing.T) {
	suite.Deep(t, suite.Load)
	fixture.NewestOnly(t, fixture.AboutLoad)
	t.Parallel()
	env := newEnvironment(t)
	const leastKills = 3
	car := env.StartSidecar(append(fixture.FastRetries(), "--worker-threads=4")...)
	vols := env.MakeVolumes(fixture.Size(500, 80), func(i int) objects.Spec { return objects.Spec{Dynamic: i%4 < 2} })
	kept := env.MakeVolumes(20, func(i int) objects.Spec {
		return objects.Spec{Dynamic: i%2 == 0, Policy: v1.PersistentVolumeReclaimRetain}
	})
	bound := env.MakeVolumes(20, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
	env.WaitAllPVs(append(slices.Clone(vols), bound...), "protected", fixture.IsProtected)
	slow := faults.Rule{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(50 * time.Millisecond)}
	env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{
		slow, {Method: "DeleteVolume", Action: faults.Block, Every: 5},
	}}))
	order := map[*objects.Volume]bool{}
	for i, vol := range vols {
		order[vol] = i%2 == 0
	}
	var users sync.WaitGroup
	users.Go(func() {
		env.ForEachVolume(append(slices.Clone(vols), kept...), func(vol *objects.Volume) error {
			if order[vol] {
				if err := vol.DeletePV(env.Ctx); err != nil {
					return err
				}
			}
			return vol.DeleteClaim(env.Ctx)
		})
	})
	kills := 0
	for left := len(vols); left > 0; {
		env.Must(car.WaitReady(env.WithTimeout()))
		// Let it do some work, then kill it in the middle of more.
		goal := len(env.DeleteCallCounts()) + len(vols)/10
		env.Eventually("the deletions continue", func() bool {
			left = 0
			for _, pv := range env.PVsOfDriver() {
				if pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete {
					left++
				}
			}
			left -= len(bound)
			return left == 0 || len(env.DeleteCallCounts()) >= goal
		})
		if left > 0 {
			car.Kill()
			env.Must(car.Restart())
			if kills++; kills == leastKills {
				env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{slow}}))
			}
		}
	}
	users.Wait()
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	disk, calls := env.VolumesOnDisk(), env.DeleteCallCounts()
	total := 0
	for _, vol := range vols {
		if disk[vol.Handle] {
			t.Errorf("LEAK: volume %s of PV %s is still on the driver's disk", vol.Handle, vol.Name)
		}
		total += calls[vol.Handle]
	}
	for _, vol := range append(kept, bound...) {
		env.ExpectKept(vol)
	}
	t.Logf("killed %d times; %d volumes deleted by %d DeleteVolume calls; %d kept", kills, len(vols), total,
		len(kept)+len(bound))
	if kills < leastKills {
		t.Errorf("killed %d times only", kills)
	}
}
