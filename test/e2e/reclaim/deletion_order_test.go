//go:build unix

package reclaim

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestReclaimPolicyIsHonouredInBothDeletionOrders is the end-to-end matrix of KEP-2644: static and dynamic PVs, both
// policies, both orders of deletion, and a policy that changes in between.
func TestReclaimPolicyIsHonouredInBothDeletionOrders(t *testing.T) {
	env := begin(t)
	env.StartSidecar()

	claimFirst := func(env *environment, vol *objects.Volume) {
		env.Must(vol.DeleteClaim(env.Ctx))
		env.Must(vol.WaitClaimGone(env.WithTimeout()))
	}
	pvFirst := func(env *environment, vol *objects.Volume) {
		env.Must(vol.DeletePV(env.Ctx))
		env.WaitPV(vol, "terminating", func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
		env.Barrier()       // the sidecar has decided on the PV
		env.ExpectKept(vol) // the claim still uses it
		claimFirst(env, vol)
	}
	orders := map[string]func(*environment, *objects.Volume){"claim first": claimFirst, "PV first": pvFirst}

	for kind, dynamic := range map[string]bool{"static": false, "dynamic": true} {
		for order, remove := range orders {
			t.Run(kind+", Delete, "+order+": the volume is deleted once, then the PV", func(t *testing.T) {
				env := env.forSubtest(t)
				vol := env.MakeProtected(objects.Spec{Dynamic: dynamic})
				remove(env, vol)
				env.ExpectReclaimed(vol, 1)
				env.expectBudget(vol, order)
			})
			t.Run(kind+", Retain, "+order+": the volume is kept", func(t *testing.T) {
				env := env.forSubtest(t)
				vol := env.MakeVolume(objects.Spec{Dynamic: dynamic, Policy: v1.PersistentVolumeReclaimRetain})
				remove(env, vol)
				if order == "PV first" {
					env.Must(vol.WaitGone(env.WithTimeout()))
				} else {
					env.WaitPV(vol, "released", func(pv *v1.PersistentVolume) bool {
						return pv.Status.Phase == v1.VolumeReleased && !fixture.HasFinalizer(pv)
					})
				}
				env.Barrier()
				env.ExpectKept(vol)
			})
			t.Run(kind+", Delete changed to Retain, "+order+": the volume is kept", func(t *testing.T) {
				env := env.forSubtest(t)
				vol := env.MakeProtected(objects.Spec{Dynamic: dynamic})
				env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimRetain))
				env.WaitPV(vol, "without our finalizer", func(pv *v1.PersistentVolume) bool { return !fixture.HasFinalizer(pv) })
				remove(env, vol)
				if order == "PV first" {
					env.Must(vol.WaitGone(env.WithTimeout()))
				}
				env.Barrier()
				env.ExpectKept(vol)
			})
			t.Run(kind+", Retain changed to Delete, "+order+": the volume is deleted", func(t *testing.T) {
				env := env.forSubtest(t)
				vol := env.MakeVolume(objects.Spec{Dynamic: dynamic, Policy: v1.PersistentVolumeReclaimRetain})
				env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete))
				env.WaitProtected(vol)
				remove(env, vol)
				env.ExpectReclaimed(vol, 1)
			})
		}
	}
}

// expectBudget compares the sidecar's requests with the contract's budget: one write more to protect the PV, and the
// PV's deletion only if no user deleted it before.
func (env *environment) expectBudget(vol *objects.Volume, order string) {
	env.T.Helper()
	wantWrites := []string{"patch persistentvolumes 200", "delete persistentvolumes 200", "patch persistentvolumes 200"}
	if order == "PV first" {
		wantWrites = []string{"patch persistentvolumes 200", "patch persistentvolumes 200"}
	}
	// The claim is read only where its PV was released before the watch showed the claim's end.
	const readClaim = "get persistentvolumeclaims 404"
	wantReads := []string{"get persistentvolumes 200"}
	// The audit log may get an entry a moment after the client got its answer.
	ctx := env.WithTimeout()
	for {
		writes, reads := env.apiRequests(vol.Name)
		if len(writes) >= len(wantWrites) && len(reads) >= len(wantReads) || ctx.Err() != nil {
			if !slices.Equal(writes, wantWrites) {
				env.T.Errorf("writes = %v, want %v", writes, wantWrites)
			}
			if len(reads) > 0 && reads[0] == readClaim {
				reads = reads[1:]
			}
			if !slices.Equal(reads, wantReads) {
				env.T.Errorf("reads = %v, want %v, and the claim before at most", reads, wantReads)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestRetainOnTerminatingPVKeepsVolume(t *testing.T) {
	env := begin(t)
	env.StartSidecar()
	vol := env.MakeProtected(objects.Spec{})
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimRetain))
	env.Barrier()
	// Terminating and bound: the finalizer holds it, so that the policy can turn back.
	env.WaitPV(vol, "protected and terminating",
		func(pv *v1.PersistentVolume) bool { return fixture.HasFinalizer(pv) && pv.DeletionTimestamp != nil })
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectKept(vol)
}

func TestUnclaimedPVKeepsVolume(t *testing.T) {
	env := begin(t)
	env.StartSidecar()
	vol := env.MakeVolume(objects.Spec{Unclaimed: true})
	env.WaitPV(vol, "available", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeAvailable })
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.Barrier()
	env.ExpectKept(vol)
}

func TestReleasedPVWithClearedClaimRefKeepsVolume(t *testing.T) {
	env := begin(t)
	vol := env.MakeVolume(objects.Spec{})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPV(vol, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	env.PVs().Merge(vol.Name, `{"spec":{"claimRef":null}}`)
	env.StartSidecar()
	env.Barrier()
	env.ExpectKept(vol)
}

func TestPVOfAnotherProvisionerIsIgnored(t *testing.T) {
	env := begin(t)
	env.StartSidecar()
	vol := env.MakeVolume(objects.Spec{Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "another.driver.example.com"}
	}})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPV(vol, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	env.Barrier()
	env.ExpectKept(vol)
	if writes, reads := env.apiRequests(vol.Name); len(writes)+len(reads) != 0 {
		t.Errorf("the sidecar touched a PV of another driver: %v %v", writes, reads)
	}
}

func TestSharedVolumeHandleIsDeletedWithItsLastPV(t *testing.T) {
	env := begin(t)
	env.StartSidecar()
	first := env.MakeVolume(objects.Spec{})
	second := env.MakeVolume(objects.Spec{Handle: first.Handle})
	env.WaitProtected(first)
	env.WaitProtected(second)
	env.Must(first.DeleteClaim(env.Ctx))
	env.WaitPV(first, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	env.Barrier()
	env.ExpectKept(first)
	env.Must(second.DeleteClaim(env.Ctx))
	env.Must(first.WaitGone(env.WithTimeout()))
	env.Must(second.WaitGone(env.WithTimeout()))
	if env.OnDisk(first.Handle) {
		t.Errorf("LEAK: volume %s is still on the driver's disk", first.Handle)
	}
}

// TestPolicyChangedToDeleteRightBeforeDeletion leaves the sidecar no time to protect the PV.
func TestPolicyChangedToDeleteRightBeforeDeletion(t *testing.T) {
	t.Parallel()
	retain := func(int) objects.Spec { return objects.Spec{Policy: v1.PersistentVolumeReclaimRetain} }
	flip := func(env *environment) func(*objects.Volume) error {
		return func(vol *objects.Volume) error {
			if err := vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete); err != nil {
				return err
			}
			return env.DeletePVIfPresent(vol) // csi-reclaimer may have been quicker
		}
	}
	unclaim := func(env *environment) func(*objects.Volume) error {
		return func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) }
	}
	t.Run("the claim was deleted before", func(t *testing.T) {
		env := begin(t)
		env.StartSidecar(fixture.FastRetries()...)
		vols := env.MakeVolumes(fixture.Size(200, 20), retain)
		bystanders := env.MakeVolumes(5, retain)
		env.ForEachVolume(append(append([]*objects.Volume{}, vols...), bystanders...), unclaim(env))
		env.WaitAllPVs(vols, "released", fixture.IsReleased)
		env.ForEachVolume(vols, flip(env))
		env.expectNoLeak(vols)
		env.ExpectKept(bystanders...)
	})
	t.Run("the claim is deleted later", func(t *testing.T) {
		env := begin(t)
		env.StartSidecar(fixture.FastRetries()...)
		vols := env.MakeVolumes(20, retain)
		env.ForEachVolume(vols, flip(env))
		env.ForEachVolume(vols, unclaim(env))
		env.expectNoLeak(vols)
	})
}

// waitNoVolumes waits until none of the volumes is on the driver's disk.
func (env *environment) waitNoVolumes(vols []*objects.Volume) {
	env.T.Helper()
	env.Eventually("no volume is left", func() bool {
		disk := env.VolumesOnDisk()
		return !slices.ContainsFunc(vols, func(vol *objects.Volume) bool { return disk[vol.Handle] })
	})
}

// expectNoLeak waits until every volume is deleted once, and volumes deleted after their PV are reported.
func (env *environment) expectNoLeak(vols []*objects.Volume) {
	env.T.Helper()
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	env.waitNoVolumes(vols)
	calls, patches := env.DeleteCallCounts(), env.patchCounts()
	late := 0
	for _, vol := range vols {
		if calls[vol.Handle] != 1 {
			env.T.Errorf("the driver received %d DeleteVolume calls for PV %s, want 1", calls[vol.Handle], vol.Name)
		}
		// A PV that was protected in time was patched twice: on and off. The audit log is written behind the answers.
		inTime := patches[vol.Name] == 2
		reported := func() bool {
			return slices.ContainsFunc(env.PVEvents(vol, "UnprotectedReclaim"),
				func(e v1.Event) bool { return strings.Contains(e.Message, vol.Handle) })
		}
		if !inTime {
			env.Eventually("PV "+vol.Name+" was protected in time, or its end is reported", func() bool {
				inTime = env.patchCounts()[vol.Name] == 2
				return inTime || reported()
			})
		}
		if !inTime {
			late++
		}
	}
	env.T.Logf("%d of %d PVs were gone before they could be protected; all volumes are deleted, once each", late,
		len(vols))
}

// patchCounts counts the sidecar's patches that took effect, by PV.
func (env *environment) patchCounts() map[string]int {
	env.T.Helper()
	count := map[string]int{}
	for _, e := range env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		return e.Resource == "persistentvolumes" && e.Verb == "patch" && e.Code == 200
	}) {
		count[e.Name]++
	}
	return count
}

func TestHeldVolumeStaysUntilHoldIsRemoved(t *testing.T) {
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	for _, order := range []string{"claim first", "PV first"} {
		held, other := env.MakeVolume(objects.Spec{}), env.MakeVolume(objects.Spec{})
		env.WaitProtected(held)
		env.WaitProtected(other)
		env.AnnotatePV(held, volume.HoldAnnotation, "evidence, ask the "+order+" desk")
		for _, vol := range []*objects.Volume{held, other} {
			if order == "PV first" {
				env.Must(vol.DeletePV(env.Ctx))
			}
			env.Must(vol.DeleteClaim(env.Ctx))
		}
		env.Must(other.WaitGone(env.WithTimeout()))
		env.WaitPVEvent(held, "Held", "ask the "+order+" desk")
		env.Barrier()
		env.ExpectKept(held)
		env.AnnotatePV(held, volume.HoldAnnotation, "")
		env.ExpectReclaimed(held, 1)
	}
}

func TestHoldStopsFailingDeletion(t *testing.T) {
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	vol := env.MakeProtected(objects.Spec{})
	env.SetFaults(faults.Rule{Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Fail, Code: "Internal"})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(vol, 2)
	env.AnnotatePV(vol, volume.HoldAnnotation, "wait")
	env.WaitPVEvent(vol, "Held", "wait")
	env.SetFaults()
	env.Barrier()
	if !env.OnDisk(vol.Handle) {
		t.Error("the volume was deleted although it was held")
	}
}
