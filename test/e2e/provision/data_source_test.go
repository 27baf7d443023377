//go:build unix

package provision

import (
	"slices"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestProvisionFromSnapshotAndClone creates volumes of both modes from volumes and from snapshots.
func TestProvisionFromSnapshotAndClone(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	const source, larger = 2 << 20, 3 << 20
	filesystem := func(*objects.ClaimSpec) {}
	for mode, as := range map[string]struct{ same, other func(*objects.ClaimSpec) }{
		"filesystem": {filesystem, withBlockMode},
		"block":      {withBlockMode, filesystem},
	} {
		t.Run(mode, func(t *testing.T) {
			env := env.forSubtest(t)
			original := env.WaitBound(env.CreateClaim(class, as.same, withSize("2Mi")))
			snapshot := env.CreateSnapshot(original, nil)
			for kind, c := range map[string]struct {
				from func(*objects.ClaimSpec)
				want backend.Source
			}{
				"clone":   {fixture.CloneOf(original.BoundClaim), backend.Source{VolumeID: original.Handle}},
				"restore": {fixture.FromSnapshot(snapshot.Name), backend.Source{SnapshotID: snapshot.Handle}},
			} {
				made := env.CreateClaim(class, as.same, c.from, withSize("3Mi"))
				small := env.CreateClaim(class, as.same, c.from)
				unlike := env.CreateClaim(class, as.other, c.from, withSize("3Mi"))
				there := env.volumeOnDisk(env.WaitBound(made))
				if isBlock := slices.ContainsFunc(there.Access,
					func(a backend.Access) bool { return a.Block }); there.Source != c.want || there.Bytes != larger ||
					isBlock != (mode == "block") {
					t.Errorf("%s: volume %+v, want %d bytes from %+v", kind, there, larger, c.want)
				}
				if n := len(env.CreateCalls(made)); n != 1 {
					t.Errorf("%s: %d CreateVolume calls", kind, n)
				}
				env.WaitClaimEvent(small, "ProvisioningFailed", "requests 1048576 bytes and")
				env.WaitClaimEvent(unlike, "ProvisioningFailed", "request the same mode")
				env.ExpectClaimUntouched(small)
				env.ExpectClaimUntouched(unlike)
			}
			if got := env.volumeOnDisk(original).Bytes; got != source {
				t.Errorf("the source has %d bytes", got)
			}
		})
	}
}

// TestProvisionFromUnusableSnapshot creates claims that must wait for their snapshot.
func TestProvisionFromUnusableSnapshot(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	original := env.WaitBound(env.CreateClaim(class))

	foreign := env.CreateSnapshot(original, func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
		c.Spec.Driver = "another.csi.example.com"
	})
	strange := env.CreateClaim(class, fixture.FromSnapshot(foreign.Name))
	env.WaitClaimEvent(strange, "ProvisioningFailed", `is of CSI driver "another.csi.example.com"`)
	env.ExpectClaimUntouched(strange)

	no, yes := false, true
	young := env.CreateSnapshot(original, func(snapshot *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
		snapshot.Status.ReadyToUse = &no
	})
	waiting := env.CreateClaim(class, fixture.FromSnapshot(young.Name))
	env.WaitClaimEvent(waiting, "ProvisioningFailed", "is not ready yet")
	env.ExpectClaimUntouched(waiting)
	snapshots := env.Snapshots.VolumeSnapshots(env.Namespace)
	now, err := snapshots.Get(env.Ctx, young.Name, metav1.GetOptions{})
	env.Must(err)
	now.Status.ReadyToUse = &yes
	_, err = snapshots.UpdateStatus(env.Ctx, now, metav1.UpdateOptions{})
	env.Must(err)
	if got := env.volumeOnDisk(env.WaitBound(waiting)).Source.SnapshotID; got != young.Handle {
		t.Errorf("restored from %q, want %q", got, young.Handle)
	}
}
