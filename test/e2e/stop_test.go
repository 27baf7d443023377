//go:build unix

package e2e

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// annotate puts an annotation on a PV, or takes it off with an empty value.
func (s *stage) annotate(vol *storage.Volume, key, value string) {
	s.t.Helper()
	text := "null"
	if value != "" {
		text = fmt.Sprintf("%q", value)
	}
	_, err := s.client.CoreV1().PersistentVolumes().Patch(s.ctx, vol.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, text), metav1.PatchOptions{})
	s.must(err)
}

func TestAHeldVolumeStaysUntilItIsLetGo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	for _, order := range []string{"claim first", "PV first"} {
		held, other := s.make(storage.Spec{}), s.make(storage.Spec{})
		s.waitProtected(held)
		s.waitProtected(other)
		s.annotate(held, volume.HoldAnnotation, "evidence, ask the "+order+" desk")
		for _, vol := range []*storage.Volume{held, other} {
			if order == "PV first" {
				s.must(vol.DeletePV(s.ctx))
			}
			s.must(vol.DeleteClaim(s.ctx))
		}
		s.must(other.WaitGone(s.soon()))
		s.waitEvent(held, "Held", "ask the "+order+" desk")
		s.fence()
		s.expectKept(held)
		s.annotate(held, volume.HoldAnnotation, "")
		s.must(held.WaitGone(s.soon()))
		s.expectDeleted(held, 1)
	}
}

func TestAHoldRescuesAVolumeWhoseDeletionFails(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	vol := s.make(storage.Spec{})
	s.waitProtected(vol)
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{{Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Fail, Code: "Internal"}}}))
	s.must(vol.DeleteClaim(s.ctx))
	s.waitCalls(vol, 2)
	s.annotate(vol, volume.HoldAnnotation, "wait")
	s.waitEvent(vol, "Held", "wait")
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{}))
	s.fence()
	if !s.onDisk(vol.Handle) {
		t.Error("the volume was deleted although it was held")
	}
}

// TestTheBrakeStopsASweep releases many volumes within seconds, as the deletion of a namespace
// does, where a quarter of them is allowed.
func TestTheBrakeStopsASweep(t *testing.T) {
	t.Parallel()
	volumes, allowed := size(2000, 200), size(500, 50)
	s := newStage(t)
	car := s.sidecar(append(eager(), "--leader-election", "--leader-election-namespace="+s.Namespace,
		fmt.Sprintf("--brake-deletions=%d", allowed), "--brake-window=1m")...)
	vols := s.makeMany(volumes, func(int) storage.Spec { return storage.Spec{Dynamic: true} })
	s.waitAll(vols, "protected", isProtected)
	began := time.Now()
	s.must(s.client.CoreV1().PersistentVolumeClaims(s.Namespace).DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	lease, annotation := s.lease(), ""
	s.eventually("the Lease says that the brake is on", func() bool {
		o, err := s.client.CoordinationV1().Leases(s.Namespace).Get(s.ctx, lease, metav1.GetOptions{})
		s.must(err)
		annotation = o.Annotations[reclaim.BrakeAnnotation]
		return annotation != ""
	})
	s.waitAll(vols, "released", func(pv *v1.PersistentVolume) bool { return pv == nil || pv.Status.Phase == v1.VolumeReleased })
	t.Logf("%d claims were gone after %v; the Lease says %q", volumes, time.Since(began).Round(time.Millisecond), annotation)
	s.metric(car, "csi_reclaimer_braked", "1")
	s.stopped(allowed)
	// What protects goes on.
	late := s.make(storage.Spec{})
	s.waitProtected(late)
	// A restart does not let go.
	car.Kill()
	s.must(car.Restart())
	s.must(car.WaitReady(s.soon()))
	s.eventually("the new leader knows", func() bool { return s.reported("Lease", lease, "Braked") })
	s.metric(car, "csi_reclaimer_braked", "1")
	s.stopped(allowed)

	_, err := s.client.CoordinationV1().Leases(s.Namespace).Patch(s.ctx, lease, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, reclaim.BrakeAnnotation), metav1.PatchOptions{})
	s.must(err)
	s.waitAll(vols, "gone", isGone)
	s.metric(car, "csi_reclaimer_braked", "0")
	disk, calls := s.onDiskAll(), s.deletionsAll()
	for _, vol := range vols {
		if disk[vol.Handle] || calls[vol.Handle] != 1 {
			t.Errorf("volume %s: on disk %v, %d DeleteVolume calls, want 1", vol.Handle, disk[vol.Handle], calls[vol.Handle])
		}
	}
	s.expectKept(late)
}

// stopped checks that no more than the allowed volumes were deleted, and that it stays so while
// the sidecar does other work.
func (s *stage) stopped(allowed int) {
	s.t.Helper()
	before := len(s.deletionsAll())
	if before > allowed {
		s.t.Fatalf("%d volumes were deleted, %d are allowed", before, allowed)
	}
	for range 3 {
		vol := s.make(storage.Spec{})
		s.waitProtected(vol)
	}
	if after := len(s.deletionsAll()); after != before {
		s.t.Errorf("%d volumes were deleted while the brake was on", after-before)
	}
	s.t.Logf("stopped after %d deletions", before)
}

// TestTheBrakeNeedsNoLeaderElection makes its Lease by itself, and a person may pull it.
func TestTheBrakeNeedsNoLeaderElection(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(append(eager(), "--leader-election-namespace="+s.Namespace, "--brake-deletions=2")...)
	vols := s.makeMany(6, func(int) storage.Spec { return storage.Spec{} })
	s.waitAll(vols, "protected", isProtected)
	s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.eventually("the Lease is made and says so", func() bool {
		o, err := s.client.CoordinationV1().Leases(s.Namespace).Get(s.ctx, s.lease(), metav1.GetOptions{})
		return err == nil && o.Annotations[reclaim.BrakeAnnotation] != ""
	})
	if n := len(s.deletionsAll()); n > 2 {
		t.Errorf("%d volumes were deleted, 2 are allowed", n)
	}
}

// lease is the name of the stage's Lease.
func (s *stage) lease() string {
	name := []byte(s.Driver)
	for i, c := range name {
		if c == '.' {
			name[i] = '-'
		}
	}
	return string(name)
}

// eventually waits until something is so.
func (s *stage) eventually(what string, so func() bool) {
	s.t.Helper()
	ctx := s.soon()
	for !so() {
		select {
		case <-ctx.Done():
			s.t.Fatalf("never: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// reported tells whether there is an Event with this reason in the stage's namespace.
func (s *stage) reported(kind, name, reason string) bool {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(s.Namespace).List(s.ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name + ",reason=" + reason,
	})
	s.must(err)
	return len(list.Items) > 0
}
