//go:build unix

package e2e

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// attach makes a VolumeAttachment, as the attach-detach controller does for a node.
func (s *stage) attach(vol *storage.Volume) *storagev1.VolumeAttachment {
	s.t.Helper()
	name := vol.Name
	attachment, err := s.client.StorageV1().VolumeAttachments().Create(s.ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: s.Driver, NodeName: "a-node-of-another-cluster",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	return attachment
}

func (s *stage) detach(attachment *storagev1.VolumeAttachment) {
	s.t.Helper()
	s.must(s.client.StorageV1().VolumeAttachments().Delete(s.ctx, attachment.Name, metav1.DeleteOptions{}))
}

func TestAnAttachedVolumeIsDeletedOnceItIsDetached(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar()
	vol := s.make(storage.Spec{Change: func(pv *v1.PersistentVolume) {
		// external-attacher leaves this until the PV is terminating.
		pv.Finalizers = append(pv.Finalizers, "external-attacher/"+s.lease())
	}})
	s.waitProtected(vol)
	attachment := s.attach(vol)
	s.must(vol.DeleteClaim(s.ctx))
	s.waitPV(vol, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	before, _ := s.requests(vol.Name)
	s.fence()
	s.expectKept(vol)
	if after, _ := s.requests(vol.Name); len(after) != len(before) {
		t.Errorf("writes while attached: %v", after[len(before):])
	}

	s.detach(attachment)
	detached := time.Now()
	s.waitPV(vol, "terminating", func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
	s.expectDeleted(vol, 1)
	if calls := s.deletions(vol.Handle); len(calls) == 1 && calls[0].Received.Sub(detached) > time.Second {
		t.Errorf("the driver was called %v after the attachment's end, want at most a second", calls[0].Received.Sub(detached))
	}
	// Ours is off; the attacher takes its own off, played here.
	s.waitPV(vol, "held by the attacher alone", func(pv *v1.PersistentVolume) bool { return !protected(pv) })
}

func TestManyAttachedVolumes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar()
	vols := s.makeMany(20, func(int) storage.Spec { return storage.Spec{Dynamic: true} })
	s.waitAll(vols, "protected", isProtected)
	attachments := map[string]*storagev1.VolumeAttachment{}
	for _, vol := range vols {
		attachments[vol.Name] = s.attach(vol)
	}
	s.all(vols[:10], func(vol *storage.Volume) error { return vol.DeletePV(s.ctx) })
	s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(vols, "released", isReleased)
	before := s.writes(s.user, vols)["patch"]
	s.fence()
	if after := s.writes(s.user, vols); after["patch"] != before || after["delete"] != 0 || s.reads(vols) != 0 {
		t.Errorf("calls while attached: %d patches more, %v, %d GETs", after["patch"]-before, after, s.reads(vols))
	}
	for _, vol := range vols {
		s.expectKept(vol)
	}
	detached := map[string]time.Time{}
	for _, vol := range vols {
		s.detach(attachments[vol.Name])
		detached[vol.Handle] = time.Now()
	}
	s.waitAll(vols, "gone", isGone)
	var longest time.Duration
	for _, vol := range vols {
		calls := s.deletions(vol.Handle)
		if len(calls) != 1 {
			t.Fatalf("the driver received %d DeleteVolume calls for PV %s, want 1", len(calls), vol.Name)
		}
		longest = max(longest, calls[0].Received.Sub(detached[vol.Handle]))
	}
	t.Logf("the driver was called at most %v after the attachment's end", longest)
	if longest > time.Second {
		t.Errorf("%v is more than a second", longest)
	}
}
