//go:build unix

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// snapshotState returns whether a VolumeSnapshot is there, is being deleted, and has the provisioner's finalizer.
func (s *stage) snapshotState(snapshot *storage.Snapshot) (there, deleting, protected bool) {
	s.t.Helper()
	now, err := s.Snapshots.VolumeSnapshots(s.Namespace).Get(s.ctx, snapshot.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, false, false
	}
	s.must(err)
	return true, now.DeletionTimestamp != nil, slices.Contains(now.Finalizers, request.SnapshotFinalizer)
}

func (s *stage) deleteVolumeSnapshot(snapshot *storage.Snapshot) {
	s.t.Helper()
	s.must(s.Snapshots.VolumeSnapshots(s.Namespace).Delete(s.ctx, snapshot.Name, metav1.DeleteOptions{}))
}

func (s *stage) waitNoSnapshot(snapshot *storage.Snapshot) {
	s.t.Helper()
	s.eventually("VolumeSnapshot "+snapshot.Name+" is gone", func() bool { there, _, _ := s.snapshotState(snapshot); return !there })
}

func (s *stage) waitUnprotected(snapshot *storage.Snapshot) {
	s.t.Helper()
	s.eventually("VolumeSnapshot "+snapshot.Name+" is without the finalizer", func() bool {
		there, _, protected := s.snapshotState(snapshot)
		return there && !protected
	})
}

// leftBehind has a snapshot carry the finalizer of a provisioner that is gone.
func leftBehind(snapshot *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
	snapshot.Finalizers = append(snapshot.Finalizers, request.SnapshotFinalizer)
}

// TestProvisionKeepsASnapshotWhileItIsRestored deletes a snapshot while a volume is restored from it, and one after.
func TestProvisionKeepsASnapshotWhileItIsRestored(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(append(eager(), "--snapshot-orphan-sweep-interval=1h")...)
	s.snapshotsServed()
	class := s.class()
	original := s.bound(s.claim(class))
	during, after := s.snapshot(original, nil), s.snapshot(original, nil)

	s.must(s.driver.SetFaults(s.ctx, slowly(false, 2*time.Second)))
	first, second := s.claim(class, fromSnapshot(during.Name)), s.claim(class, fromSnapshot(during.Name))
	s.asked(first)
	s.asked(second)
	if _, _, protected := s.snapshotState(during); !protected {
		t.Error("CreateVolume was called before the snapshot was protected")
	}
	s.deleteVolumeSnapshot(during)
	if there, deleting, protected := s.snapshotState(during); !there || !deleting || !protected {
		t.Errorf("there %v, deleting %v, protected %v; want the snapshot kept while it is restored", there, deleting, protected)
	}
	for _, claim := range []*storage.Claim{first, second} {
		if got := s.volumeOf(s.bound(claim)).Source.SnapshotID; got != during.Handle {
			t.Errorf("restored from %q, want %q", got, during.Handle)
		}
	}
	s.waitNoSnapshot(during)
	s.must(s.driver.ClearFaults(s.ctx))

	s.bound(s.claim(class, fromSnapshot(after.Name)))
	s.waitUnprotected(after)
	s.deleteVolumeSnapshot(after)
	if there, _, _ := s.snapshotState(after); there {
		t.Error("a snapshot that was restored cannot be deleted")
	}
}

// TestProvisionKilledWhileASnapshotIsRestored has the next process free what the first protected.
func TestProvisionKilledWhileASnapshotIsRestored(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	flags := append(eager(), "--snapshot-orphan-sweep-interval=500ms")
	car := s.sidecar(flags...)
	s.snapshotsServed()
	class := s.class()
	original := s.bound(s.claim(class))
	finished, abandoned := s.snapshot(original, nil), s.snapshot(original, nil)
	s.must(s.driver.SetFaults(s.ctx, slowly(true, time.Minute)))
	claims := []*storage.Claim{s.claim(class, fromSnapshot(finished.Name)), s.claim(class, fromSnapshot(abandoned.Name))}
	for _, claim := range claims {
		s.asked(claim)
	}
	car.Kill()
	s.must(s.driver.ClearFaults(s.ctx))
	for _, snapshot := range []*storage.Snapshot{finished, abandoned} {
		s.deleteVolumeSnapshot(snapshot)
	}
	s.deleteClaim(claims[1])
	s.must(car.Restart(flags...))
	if got := s.volumeOf(s.bound(claims[0])).Source.SnapshotID; got != finished.Handle {
		t.Errorf("restored from %q, want %q", got, finished.Handle)
	}
	s.waitClaim(claims[1], "gone", noClaim)
	s.waitNoSnapshot(finished)
	s.waitNoSnapshot(abandoned)
}

// TestASnapshotLeftBehindIsFreed has snapshots with the finalizer of an external-provisioner that is gone, and
// a sidecar that provisions, and one that does not.
func TestASnapshotLeftBehindIsFreed(t *testing.T) {
	t.Parallel()
	for _, provisions := range []string{"true", "false"} {
		t.Run("--provision="+provisions, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			car := s.sidecar(eager()...)
			s.snapshotsServed()
			class := s.class()
			original := s.bound(s.claim(class))
			living, deleted, contentGone := s.snapshot(original, leftBehind), s.snapshot(original, leftBehind), s.snapshot(original, leftBehind)
			used, foreign := s.snapshot(original, leftBehind), s.snapshot(original, func(snapshot *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
				leftBehind(snapshot, c)
				c.Spec.Driver = "another.csi.example.com"
			})
			t.Cleanup(func() {
				_, _ = s.Snapshots.VolumeSnapshots(s.Namespace).Patch(s.clean(), foreign.Name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			})
			pending := s.claim("of-nobody", fromSnapshot(used.Name)) // a class that does not exist, so that nobody ends it
			s.deleteVolumeSnapshot(deleted)
			s.deleteVolumeSnapshot(contentGone)
			s.must(s.Snapshots.VolumeSnapshotContents().Delete(s.ctx, contentGone.Content, metav1.DeleteOptions{}))

			s.restart(car, append(eager(), "--snapshot-orphan-sweep-interval=200ms", "--provision="+provisions)...)
			s.waitNoSnapshot(deleted)
			s.waitNoSnapshot(contentGone)
			s.waitUnprotected(living)
			for _, snapshot := range []*storage.Snapshot{used, foreign} {
				if _, _, protected := s.snapshotState(snapshot); !protected {
					t.Errorf("VolumeSnapshot %s was freed", snapshot.Name)
				}
			}
			s.deleteClaim(pending)
			s.waitUnprotected(used)
			if _, _, protected := s.snapshotState(foreign); !protected {
				t.Error("another driver's VolumeSnapshot was freed")
			}
		})
	}
}

// TestTheFinalizersOfSourcesAreReleased on the way out, from snapshots and from claims that were cloned.
func TestTheFinalizersOfSourcesAreReleased(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(append(eager(), "--snapshot-orphan-sweep-interval=0")...)
	s.snapshotsServed()
	class := s.class()
	original := s.bound(s.claim(class))
	s.bound(s.claim(class, cloneOf(original.claim)))
	snapshot := s.snapshot(original, leftBehind)
	s.must(car.Terminate())
	said, err := s.release("--in-flight-quiet-period=2s")
	if err != nil || !strings.Contains(said, "1 VolumeSnapshots were released") || !strings.Contains(said, "1 claims that were cloned were released") {
		t.Errorf("%v: %s", err, said)
	}
	s.waitUnprotected(snapshot)
	s.deleteClaim(original.claim)
	s.waitClaim(original.claim, "gone", noClaim)
}

// TestProvisionRestoresWithoutTheRightToUpdateSnapshots has the rules of an external-provisioner before 6.2.
func TestProvisionRestoresWithoutTheRightToUpdateSnapshots(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "", mockdriver.Options{})
	rules := stockRules("patch")
	for i := range rules {
		if slices.Contains(rules[i].Resources, "volumesnapshots") {
			rules[i].Verbs = []string{"get"}
		}
	}
	s.allow(rules)
	car := s.sidecar(eager()...)
	s.must(car.WaitLog(s.soon(), "Preflight: may not update volumesnapshots: a VolumeSnapshot can be deleted while a volume is restored from it"))
	s.must(car.WaitLog(s.soon(), "Preflight: may not list volumesnapshots: VolumeSnapshots that a provisioner left with its finalizer cannot be deleted"))
	s.snapshotsServed()
	class := s.class()
	snapshot := s.snapshot(s.bound(s.claim(class)), nil)
	s.bound(s.claim(class, fromSnapshot(snapshot.Name)))
	if _, _, protected := s.snapshotState(snapshot); protected {
		t.Error("protected without the right to")
	}
}
