//go:build unix

package reclaim

import (
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestAttachedVolumeIsDeletedAfterDetach(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar()
	vol := env.MakeVolume(objects.Spec{Change: func(pv *v1.PersistentVolume) {
		// external-attacher leaves this until the PV is terminating.
		pv.Finalizers = append(pv.Finalizers, "external-attacher/"+env.LeaseName())
	}})
	env.WaitProtected(vol)
	attachment := env.Attach(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPV(vol, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	before, _ := env.apiRequests(vol.Name)
	env.Barrier()
	env.ExpectKept(vol)
	if after, _ := env.apiRequests(vol.Name); len(after) != len(before) {
		t.Errorf("writes while attached: %v", after[len(before):])
	}

	// No timer ends the wait: see TestWatchEventsEnqueueWaitingPVs of pkg/reclaim.
	env.Detach(attachment)
	env.WaitPV(vol, "terminating", func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
	env.ExpectDeleted(vol, 1)
	// Our finalizer is removed; this removes the attacher's, as the attacher would.
	env.WaitPV(vol, "held by the attacher alone", func(pv *v1.PersistentVolume) bool { return !fixture.HasFinalizer(pv) })
}

func TestManyAttachedVolumesAreDeletedAfterDetach(t *testing.T) {
	suite.Deep(t, suite.Load)
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar()
	vols := env.MakeVolumes(20, func(int) objects.Spec { return objects.Spec{Dynamic: true} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	attachments := map[string]*storagev1.VolumeAttachment{}
	for _, vol := range vols {
		attachments[vol.Name] = env.Attach(vol)
	}
	env.ForEachVolume(vols[:10], func(vol *objects.Volume) error { return vol.DeletePV(env.Ctx) })
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(vols, "released", fixture.IsReleased)
	before := env.WritesToPVs(env.User, vols)
	env.Barrier()
	if after := env.WritesToPVs(env.User, vols); !maps.Equal(after, before) || after["delete"] != 0 ||
		env.reads(vols) != 0 {
		t.Errorf("calls while attached: %v after %v, %d GETs", after, before, env.reads(vols))
	}
	for _, vol := range vols {
		env.ExpectKept(vol)
	}
	detached := map[string]time.Time{}
	for _, vol := range vols {
		env.Detach(attachments[vol.Name])
		detached[vol.Handle] = time.Now()
	}
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	var longest time.Duration
	for _, vol := range vols {
		calls := env.DeleteCalls(vol.Handle)
		if len(calls) != 1 {
			t.Fatalf("the driver received %d DeleteVolume calls for PV %s, want 1", len(calls), vol.Name)
		}
		longest = max(longest, calls[0].Received.Sub(detached[vol.Handle]))
	}
	t.Logf("the driver was called at most %v after the attachment's end", longest)
}
