//go:build unix

package reclaim

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// environment is the environment of a test, with the helpers of this suite.
type environment struct{ *fixture.Environment }

// begin returns the environment of a test that runs beside the others, if the conditions hold.
func begin(t *testing.T, conditions ...fixture.Condition) *environment {
	t.Helper()
	fixture.Begin(t, conditions...)
	return &environment{fixture.New(t)}
}

func newForRole(t *testing.T, role string, options mockdriver.Options) *environment {
	t.Helper()
	return &environment{fixture.NewForRole(t, role, options)}
}

func (env *environment) forSubtest(t *testing.T) *environment {
	return &environment{env.ForSubtest(t)}
}

func TestSIGTERMWaitsForDeletionInProgress(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	car := env.StartSidecar("--leader-election", "--leader-election-namespace="+env.Namespace)
	vol := env.MakeProtected(objects.Spec{})
	env.SetFaults(faults.Rule{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(2 * time.Second)})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(vol, 1)
	env.Must(car.Terminate())
	// No other program removes the finalizer.
	env.ExpectReclaimed(vol, 1)
	leases := env.Leases().List("!" + inflight.LabelLog)
	if len(leases) != 1 || ptr.Deref(leases[0].Spec.HolderIdentity, "") != "" {
		t.Errorf("the Lease was not given up: %+v", leases)
	}
}

// TestVolumeLeaksWithoutSidecar shows the leak that csi-reclaimer prevents.
func TestVolumeLeaksWithoutSidecar(t *testing.T) {
	env := begin(t)
	vol := env.MakeVolume(objects.Spec{})
	env.DeletePVFirst(vol)
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectKept(vol)
}

func TestPVDeletedBeforeProtectionIsReported(t *testing.T) {
	env := begin(t)
	vol := env.MakeVolume(objects.Spec{})
	env.Must(vol.DeletePV(env.Ctx))
	env.StartSidecar()
	env.WaitPVEvent(vol, "DeletionUnprotected", "")
	env.ExpectKept(vol)
}

// TestSidecarKilledRepeatedlyDeletesEachVolume kills the sidecar while many volumes are deleted in both orders. The
// driver does not answer some calls, so that no sidecar deletes all of them before it is killed.
func TestSidecarKilledRepeatedlyDeletesEachVolume(t *testing.T) {
	env := begin(t, suite.Load, fixture.AboutLoad)
	const leastKills = 3
	car := env.StartSidecar(append(fixture.FastRetries(), "--worker-threads=4")...)
	vols := env.MakeVolumes(fixture.Size(500, 80), func(i int) objects.Spec { return objects.Spec{Dynamic: i%4 < 2} })
	kept := env.MakeVolumes(20, func(i int) objects.Spec {
		return objects.Spec{Dynamic: i%2 == 0, Policy: v1.PersistentVolumeReclaimRetain}
	})
	bound := env.MakeVolumes(20, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
	env.WaitAllPVs(append(slices.Clone(vols), bound...), "protected", fixture.IsProtected)
	slow := faults.Rule{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(50 * time.Millisecond)}
	env.SetFaults(slow, faults.Rule{Method: "DeleteVolume", Action: faults.Block, Every: 5})
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
				env.SetFaults(slow)
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
	env.ExpectKept(append(kept, bound...)...)
	t.Logf("killed %d times; %d volumes deleted by %d DeleteVolume calls; %d kept", kills, len(vols), total,
		len(kept)+len(bound))
	if kills < leastKills {
		t.Errorf("killed %d times only", kills)
	}
}

// TestFailoverFinishesDeletion kills the leader after the driver deleted the volume and before the PV is released.
func TestFailoverFinishesDeletion(t *testing.T) {
	env := begin(t)
	replica := func(flags []string) []string {
		return slices.Concat(fixture.FastRetries(),
			[]string{"--leader-election", "--leader-election-namespace=" + env.Namespace}, flags)
	}
	leader := env.StartSidecar(replica(fixture.NextReplicaFlags("replica-1"))...)
	env.Must(leader.WaitLog(env.WithTimeout(), "Became the leader"))
	follower := env.StartSidecar(replica(fixture.NextReplicaFlags("replica-2"))...)
	vol := env.MakeProtected(objects.Spec{})
	env.SetFaults(faults.Rule{Method: "DeleteVolume", First: 1, Action: faults.Hang, AfterWork: true})
	env.DeletePVFirst(vol)
	env.Eventually("the leader has the volume deleted", func() bool { return !env.OnDisk(vol.Handle) })
	leader.Kill()
	env.HandOverLease(env.LeaseName(), "replica-1")
	env.Must(follower.WaitLog(env.WithTimeout(), "Became the leader"))
	env.ExpectReclaimed(vol, 2)
}

func TestDryRunReportsWithoutWrites(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	due := env.MakeVolume(objects.Spec{
		Change: func(pv *v1.PersistentVolume) { pv.Finalizers = []string{volume.Finalizer} }})
	fresh := env.MakeVolume(objects.Spec{})
	kept := env.MakeVolume(objects.Spec{Policy: v1.PersistentVolumeReclaimRetain})
	env.ForEachVolume([]*objects.Volume{due, kept}, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs([]*objects.Volume{due, kept}, "released", fixture.IsReleased)
	// The brake has room for the two deletions: beyond it, none would be decided.
	car := env.StartSidecar("--dry-run", "--leader-election", "--brake-deletions=100",
		"--leader-election-namespace="+env.Namespace)
	env.Must(car.WaitLog(env.WithTimeout(), "Would do AddFinalizer"))
	env.Must(car.WaitLog(env.WithTimeout(), "Would do DeleteVolume: "+reclaim.ReasonReclaim.Sentence()))
	env.WaitMetric(car, `csi_reclaimer_waiting_pvs{driver_name="`+env.Driver+`",reason="DryRun"}`, "2")
	env.Must(fresh.DeleteClaim(env.Ctx))
	env.Must(fresh.DeletePV(env.Ctx))
	env.Must(fresh.WaitGone(env.WithTimeout()))
	env.Must(car.WaitLog(env.WithTimeout(), "Would do DeleteVolume: "+reclaim.ReasonUnprotectedReclaim.Sentence()))
	env.Must(car.Terminate()) // no more calls come
	events := env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		return e.APIGroup != "authorization.k8s.io" && e.Writes()
	})
	if len(events) > 0 {
		t.Errorf("a dry run wrote: %+v", events)
	}
	for _, vol := range []*objects.Volume{due, fresh, kept} {
		env.ExpectKept(vol)
	}
}

func TestStaticPVsAreIgnoredByFlag(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	car := env.StartSidecar(fixture.FastRetries()...)
	static, dynamic := env.MakeVolume(objects.Spec{}), env.MakeVolume(objects.Spec{Dynamic: true})
	twin := env.MakeVolume(objects.Spec{Handle: dynamic.Handle})
	all := []*objects.Volume{static, dynamic, twin}
	env.WaitAllPVs(all, "protected", fixture.IsProtected)
	env.Restart(car, "--static-pvs=ignore")
	env.WaitAllPVs([]*objects.Volume{static, twin}, "without our finalizer",
		func(pv *v1.PersistentVolume) bool { return pv != nil && !fixture.HasFinalizer(pv) })
	env.ForEachVolume([]*objects.Volume{static, dynamic},
		func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs([]*objects.Volume{static, dynamic}, "released", fixture.IsReleased)
	env.WaitPVEvent(dynamic, "SharedHandle", twin.Name) // an ignored PV still needs its volume
	env.Must(static.DeletePV(env.Ctx))
	env.Must(static.WaitGone(env.WithTimeout()))
	env.Must(twin.DeleteClaim(env.Ctx))
	env.ExpectReclaimed(dynamic, 1)
	env.ExpectKept(static)
}

// TestProtectAnyPolicyClosesRace protects PVs of any policy, so that a policy change right before the deletion finds
// the finalizer.
func TestProtectAnyPolicyClosesRace(t *testing.T) {
	env := begin(t)
	env.StartSidecar(append(fixture.FastRetries(), "--finalizer-scope=bound-any")...)
	vols := env.MakeVolumes(10, func(int) objects.Spec { return objects.Spec{Policy: v1.PersistentVolumeReclaimRetain} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	turned, kept := vols[:5], vols[5:]
	env.ForEachVolume(turned, func(vol *objects.Volume) error {
		return vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete)
	})
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeletePV(env.Ctx) })
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	for _, vol := range turned {
		env.ExpectDeleted(vol, 1)
		if events := env.PVEvents(vol, "UnprotectedReclaim"); len(events) > 0 {
			t.Errorf("PV %s was not protected in time", vol.Name)
		}
	}
	env.ExpectKept(kept...)
}
