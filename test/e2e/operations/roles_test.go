//go:build unix

package operations

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// In TestCompanionBesideProvisionerWithoutFinalizer both programs work on the same PVs.
func TestCompanionBesideProvisionerWithoutFinalizer(t *testing.T) {
	fixture.Begin(t, suite.Variant, fixture.AboutPeer)
	env := newForRole(t, "companion", mockdriver.Options{})
	other := env.StartPeer(false)
	car := env.StartSidecar(append(fixture.FastRetries(), "--role=companion")...)
	const each = 20
	pvFirst := env.MakeVolumes(each, func(int) objects.Spec { return objects.Spec{Dynamic: true} })
	claimFirst := env.MakeVolumes(each, func(int) objects.Spec { return objects.Spec{Dynamic: true} })
	kept := env.MakeVolumes(2, func(int) objects.Spec {
		return objects.Spec{Dynamic: true, Policy: v1.PersistentVolumeReclaimRetain}
	})
	// A PV that still carries the owner's finalizer, which the peer removes.
	former := env.MakeVolume(objects.Spec{Dynamic: true,
		Change: func(pv *v1.PersistentVolume) { pv.Finalizers = []string{volume.Finalizer} }})
	all := append(slices.Concat(pvFirst, claimFirst), former)
	env.WaitAllPVs(all, "protected by the companion alone", func(pv *v1.PersistentVolume) bool {
		return pv != nil && hasCompanionFinalizer(pv) && !fixture.HasFinalizer(pv)
	})
	env.ForEachVolume(pvFirst, func(vol *objects.Volume) error { return vol.DeletePV(env.Ctx) })
	env.ForEachVolume(append(slices.Concat(pvFirst, claimFirst), kept...),
		func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(append(slices.Clone(pvFirst), claimFirst...), "gone", fixture.IsGone)
	disk, calls := env.VolumesOnDisk(), env.DeleteCallCounts()
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
	env.ExpectKept(append(kept, former)...)
	ours, theirs := env.WritesToPVs(env.User, all), env.WritesToPVs(other, all)
	t.Logf("%d volumes of each order: %d DeleteVolume calls repeated beside the peer; our writes %v, the peer's %v", each,
		repeated, ours, theirs)
	// Beside a peer that writes too, some are refused.
	if ours["delete"] != 0 || ours["patch"] > 2*len(all) {
		t.Errorf("our writes: %v, want at most two patches for each of %d PVs", ours, len(all))
	}
	metrics, err := car.Get(env.Ctx, "/metrics")
	env.Must(err)
	if !strings.Contains(metrics, "csi_reclaimer_repeated_deletions_total") {
		t.Error("repeated deletions are not counted")
	}
}

// TestRoleIsChangedAndChangedBack moves PVs from an owner to a companion and back.
func TestRoleIsChangedAndChangedBack(t *testing.T) {
	env := begin(t, suite.Variant, fixture.AboutPeer)
	car := env.StartSidecar(fixture.FastRetries()...)
	vols := env.MakeVolumes(6, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
	env.WaitAllPVs(vols, "protected by the owner", fixture.IsProtected)
	restart := func(role string) {
		env.Restart(car, "--role="+role)
	}
	restart("companion")
	env.WaitAllPVs(vols, "protected by the companion",
		func(pv *v1.PersistentVolume) bool { return pv != nil && hasCompanionFinalizer(pv) })
	env.Must(vols[0].DeletePV(env.Ctx)) // terminating on the way
	restart("owner")
	env.WaitAllPVs(vols[1:], "adopted by the owner", func(pv *v1.PersistentVolume) bool {
		return pv != nil && fixture.HasFinalizer(pv) && !hasCompanionFinalizer(pv)
	})
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	env.ExpectDeletedOnce(vols...)
}

// TestObserverBesideProvisionerWithFinalizer leaves all PVs to the peer.
func TestObserverBesideProvisionerWithFinalizer(t *testing.T) {
	fixture.Begin(t, fixture.AboutPeer)
	env := newForRole(t, "observer", mockdriver.Options{})
	env.StartPeer(true)
	env.StartSidecar("--role=observer")
	vols := env.MakeVolumes(20, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
	env.WaitAllPVs(vols, "protected by the peer", fixture.IsProtected)
	env.ForEachVolume(vols[:10], func(vol *objects.Volume) error { return vol.DeletePV(env.Ctx) })
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	disk := env.VolumesOnDisk()
	for _, vol := range vols {
		if disk[vol.Handle] {
			t.Errorf("LEAK: volume %s", vol.Handle)
		}
		if events := env.PVEvents(vol, "VolumeLeftBehind"); len(events) != 0 {
			t.Errorf("a false alarm about %s: %s", vol.Name, events[0].Message)
		}
	}
	env.expectNoWrites("events")
}

// expectNoWrites checks that csi-reclaimer has written nothing, but to these resources.
func (env *environment) expectNoWrites(but ...string) {
	env.T.Helper()
	events := env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		return e.Resource != "selfsubjectaccessreviews" && !slices.Contains(but, e.Resource) && e.Writes()
	})
	if len(events) != 0 {
		env.T.Errorf("it wrote: %+v", events)
	}
}

// TestObserverReportsVolumesMissedByPeer changes policies and deletes the PVs at once, a race that the peer may lose.
func TestObserverReportsVolumesMissedByPeer(t *testing.T) {
	fixture.Begin(t, suite.Variant, fixture.AboutPeer)
	for reclaims, want := range map[string]string{"--reclaim-unprotected=true": "UnprotectedReclaim",
		"--reclaim-unprotected=false": "VolumeLeftBehind"} {
		t.Run(reclaims, func(t *testing.T) {
			t.Parallel()
			env := newForRole(t, "observer", mockdriver.Options{})
			env.StartPeer(true)
			env.StartSidecar(append(fixture.FastRetries(), "--role=observer", reclaims)...)
			vols := env.MakeVolumes(10, func(int) objects.Spec { return objects.Spec{Policy: v1.PersistentVolumeReclaimRetain} })
			env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
			env.WaitAllPVs(vols, "released", fixture.IsReleased)
			for _, vol := range vols {
				env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete))
				env.Must(env.DeletePVIfPresent(vol))
			}
			env.WaitAllPVs(vols, "gone", fixture.IsGone)
			lost := 0
			for _, vol := range vols {
				env.Eventually("volume "+vol.Handle+" of PV "+vol.Name+" is gone, or reported", func() bool {
					leaked, reported := env.OnDisk(vol.Handle), len(env.PVEvents(vol, want)) > 0
					if reported {
						lost++
					}
					return reported || !leaked // volumes deleted by the peer are not reported
				})
			}
			t.Logf("the peer lost %d of %d races", lost, len(vols))
			if want != "UnprotectedReclaim" {
				return
			}
			for _, vol := range vols {
				if env.OnDisk(vol.Handle) {
					t.Errorf("LEAK: volume %s", vol.Handle)
				}
			}
		})
	}
}

func hasCompanionFinalizer(pv *v1.PersistentVolume) bool {
	return slices.Contains(pv.Finalizers, volume.CompanionFinalizer)
}

// TestCompanionDeletesVolumeOfPVDeletedByUser has two released PVs. A peer without KEP-2644 deletes one, after its
// volume. A user deletes the other before the peer deletes its volume; the peer then does nothing. The companion cannot
// distinguish the two cases, so it calls DeleteVolume for both.
func TestCompanionDeletesVolumeOfPVDeletedByUser(t *testing.T) {
	fixture.Begin(t, fixture.AboutPeer)
	const stays = "example.com/look-at-it"
	env := newForRole(t, "companion", mockdriver.Options{})
	name := "pv-" + rand.String(8)
	env.SetFaults(faults.Rule{Method: "DeleteVolume", VolumeName: name, Action: faults.Fail, Code: "Unavailable"})
	env.StartPeer(false)
	car := env.StartSidecar(append(fixture.FastRetries(), "--role=companion")...)
	finalizer := func(pv *v1.PersistentVolume) { pv.Finalizers = []string{stays} }
	byPeer := env.MakeVolume(objects.Spec{Dynamic: true, Change: finalizer})
	byUser := env.MakeVolume(objects.Spec{Dynamic: true, Change: finalizer, Name: name})
	vols := []*objects.Volume{byPeer, byUser}
	env.WaitAllPVs(vols, "protected by the companion", func(pv *v1.PersistentVolume) bool {
		return pv != nil && hasCompanionFinalizer(pv)
	})
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.Eventually("the peer has tried to delete the volume",
		func() bool { return len(env.DeleteCalls(byUser.Handle)) > 0 })
	env.Must(byUser.DeletePV(env.Ctx))
	env.SetFaults()
	env.WaitAllPVs(vols, "released by the companion", func(pv *v1.PersistentVolume) bool {
		return pv != nil && pv.DeletionTimestamp != nil && slices.Equal(pv.Finalizers, []string{stays})
	})
	for _, vol := range vols {
		if env.OnDisk(vol.Handle) {
			t.Errorf("LEAK: volume %s of PV %s is still on the driver's disk", vol.Handle, vol.Name)
		}
	}
	// The peer repeats its call where it works before its watch has shown that the PV is terminating.
	ours := 0
	calls := env.DeleteCalls(byPeer.Handle)
	for _, call := range calls {
		if call.PID == car.PID() {
			ours++
		}
	}
	if ours != 1 || len(calls) < 2 {
		t.Errorf("%d DeleteVolume calls for the volume that the peer deleted, %d by the companion, want 1 by it", len(calls),
			ours)
	}
	env.WaitMetric(car, `csi_reclaimer_repeated_deletions_total{driver_name="`+env.Driver+`"}`, "2")
	if diff := cmp.Diff(env.createWithTraces(byPeer), env.createWithTraces(byUser)); diff != "" {
		t.Errorf("the peer's deletion of a PV differs from a user's: the second call is not necessary\n%s", diff)
	}
	for _, vol := range vols {
		env.PVs().SetFinalizers(vol.Name)
	}
}

// createWithTraces returns a PV's fields without the ones that differ between PVs.
func (env *environment) createWithTraces(vol *objects.Volume) *v1.PersistentVolume {
	env.T.Helper()
	pv, err := vol.PV(env.Ctx)
	env.Must(err)
	if pv == nil {
		env.T.Fatalf("PV %s is gone", vol.Name)
	}
	pv.Name, pv.UID, pv.ResourceVersion, pv.Generation = "", "", "", 0
	pv.CreationTimestamp, pv.DeletionTimestamp, pv.Status.LastPhaseTransitionTime = metav1.Time{}, nil, nil
	pv.Spec.ClaimRef, pv.Spec.CSI.VolumeHandle = nil, ""
	for i := range pv.ManagedFields {
		pv.ManagedFields[i].Time = nil
	}
	slices.SortFunc(pv.ManagedFields, func(a, b metav1.ManagedFieldsEntry) int {
		return slices.Compare(
			[]string{a.Manager, a.Subresource, string(a.Operation)}, []string{b.Manager, b.Subresource, string(b.Operation)})
	})
	return pv
}
