//go:build unix

package e2e

import (
	"slices"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// fromSnapshot has a claim be restored from the snapshot of that name.
func fromSnapshot(name string) func(*storage.ClaimSpec) {
	return func(spec *storage.ClaimSpec) { spec.From = storage.FromSnapshot(name) }
}

// snapshotsServed has the shared API server serve snapshots from now on. The first who asks for that sees
// how a claim fares where they are not installed.
func (s *stage) snapshotsServed() {
	s.t.Helper()
	if _, err := s.Snapshots.VolumeSnapshots(s.Namespace).List(s.ctx, metav1.ListOptions{}); apierrors.IsNotFound(err) {
		early := s.claim(s.class(), fromSnapshot("none"))
		s.waitTold(early, "ProvisioningFailed", "snapshots are not installed in this cluster: it serves no snapshot.storage.k8s.io/v1; install the CRDs")
		s.expectUntouched(early)
		s.deleteClaim(early)
		s.waitClaim(early, "gone", noClaim)
	}
	s.must(cluster.InstallSnapshots(s.ctx))
}

// snapshot has the driver take a snapshot of a volume; change alters what the API server is told of it, and may be nil.
func (s *stage) snapshot(of *provisioned, change func(*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent)) *storage.Snapshot {
	s.t.Helper()
	snapshot, err := s.MakeSnapshot(s.soon(), storage.SnapshotSpec{Name: "snap-" + rand.String(8), Of: of.Volume, Change: change})
	s.must(err)
	s.t.Cleanup(func() { _ = snapshot.Delete(s.clean()) })
	return snapshot
}

// TestProvisionFromASource makes volumes of both modes from volumes and from snapshots.
func TestProvisionFromASource(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	s.snapshotsServed()
	class := s.class()
	const source, larger = 2 << 20, 3 << 20
	filesystem := func(*storage.ClaimSpec) {}
	for mode, as := range map[string]struct{ same, other func(*storage.ClaimSpec) }{
		"filesystem": {filesystem, block},
		"block":      {block, filesystem},
	} {
		t.Run(mode, func(t *testing.T) {
			s := s.in(t)
			original := s.bound(s.claim(class, as.same, ofSize("2Mi")))
			snapshot := s.snapshot(original, nil)
			for kind, c := range map[string]struct {
				from func(*storage.ClaimSpec)
				want backend.Source
			}{
				"clone":   {cloneOf(original.claim), backend.Source{VolumeID: original.Handle}},
				"restore": {fromSnapshot(snapshot.Name), backend.Source{SnapshotID: snapshot.Handle}},
			} {
				made := s.claim(class, as.same, c.from, ofSize("3Mi"))
				small := s.claim(class, as.same, c.from)
				unlike := s.claim(class, as.other, c.from, ofSize("3Mi"))
				there := s.volumeOf(s.bound(made))
				if isBlock := slices.ContainsFunc(there.Access, func(a backend.Access) bool { return a.Block }); there.Source != c.want || there.Bytes != larger || isBlock != (mode == "block") {
					t.Errorf("%s: volume %+v, want %d bytes from %+v", kind, there, larger, c.want)
				}
				if n := len(s.creations(made)); n != 1 {
					t.Errorf("%s: %d CreateVolume calls", kind, n)
				}
				s.waitTold(small, "ProvisioningFailed", "asks for 1048576 bytes and")
				s.waitTold(unlike, "ProvisioningFailed", "ask for the same")
				s.expectUntouched(small)
				s.expectUntouched(unlike)
			}
			if got := s.volumeOf(original).Bytes; got != source {
				t.Errorf("the source has %d bytes", got)
			}
		})
	}
}

// TestProvisionFromASnapshotThatIsNotFit has claims wait for their snapshot.
func TestProvisionFromASnapshotThatIsNotFit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	s.snapshotsServed()
	class := s.class()
	original := s.bound(s.claim(class))

	foreign := s.snapshot(original, func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
		c.Spec.Driver = "another.csi.example.com"
	})
	strange := s.claim(class, fromSnapshot(foreign.Name))
	s.waitTold(strange, "ProvisioningFailed", `is of CSI driver "another.csi.example.com"`)
	s.expectUntouched(strange)

	no, yes := false, true
	young := s.snapshot(original, func(snapshot *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
		snapshot.Status.ReadyToUse = &no
	})
	waiting := s.claim(class, fromSnapshot(young.Name))
	s.waitTold(waiting, "ProvisioningFailed", "is not ready yet")
	s.expectUntouched(waiting)
	snapshots := s.Snapshots.VolumeSnapshots(s.Namespace)
	now, err := snapshots.Get(s.ctx, young.Name, metav1.GetOptions{})
	s.must(err)
	now.Status.ReadyToUse = &yes
	_, err = snapshots.UpdateStatus(s.ctx, now, metav1.UpdateOptions{})
	s.must(err)
	if got := s.volumeOf(s.bound(waiting)).Source.SnapshotID; got != young.Handle {
		t.Errorf("restored from %q, want %q", got, young.Handle)
	}
}
