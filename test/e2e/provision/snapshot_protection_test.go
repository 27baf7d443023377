//go:build unix

package provision

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// snapshotState returns whether a VolumeSnapshot is there, is being deleted, and has the provisioner's finalizer.
func (env *environment) snapshotState(snapshot *objects.Snapshot) (there, deleting, protected bool) {
	env.T.Helper()
	now, err := env.Snapshots.VolumeSnapshots(env.Namespace).Get(env.Ctx, snapshot.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, false, false
	}
	env.Must(err)
	return true, now.DeletionTimestamp != nil, slices.Contains(now.Finalizers, request.SnapshotFinalizer)
}

func (env *environment) deleteVolumeSnapshot(snapshot *objects.Snapshot) {
	env.T.Helper()
	env.Must(env.Snapshots.VolumeSnapshots(env.Namespace).Delete(env.Ctx, snapshot.Name, metav1.DeleteOptions{}))
}

func (env *environment) waitNoSnapshot(snapshot *objects.Snapshot) {
	env.T.Helper()
	env.Eventually("VolumeSnapshot "+snapshot.Name+" is gone",
		func() bool { there, _, _ := env.snapshotState(snapshot); return !there })
}

func (env *environment) waitUnprotected(snapshot *objects.Snapshot) {
	env.T.Helper()
	env.Eventually("VolumeSnapshot "+snapshot.Name+" is without the finalizer", func() bool {
		there, _, protected := env.snapshotState(snapshot)
		return there && !protected
	})
}

// withStaleFinalizer has a snapshot carry the finalizer of a provisioner that is gone.
func withStaleFinalizer(snapshot *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
	snapshot.Finalizers = append(snapshot.Finalizers, request.SnapshotFinalizer)
}

// TestSnapshotIsProtectedDuringRestore deletes one snapshot during the restore, and one after.
func TestSnapshotIsProtectedDuringRestore(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(append(fixture.FastRetries(), "--snapshot-orphan-sweep-interval=1h")...)
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	original := env.WaitBound(env.CreateClaim(class))
	during, after := env.CreateSnapshot(original, nil), env.CreateSnapshot(original, nil)

	env.Must(env.MockDriver.SetFaults(env.Ctx, fixture.BlockCreateVolume(false)))
	first, second := env.CreateClaim(class, fixture.FromSnapshot(during.Name)), env.CreateClaim(class,
		fixture.FromSnapshot(during.Name))
	env.waitCreateCall(first)
	env.waitCreateCall(second)
	if _, _, protected := env.snapshotState(during); !protected {
		t.Error("CreateVolume was called before the snapshot was protected")
	}
	env.deleteVolumeSnapshot(during)
	if there, deleting, protected := env.snapshotState(during); !there || !deleting || !protected {
		t.Errorf("there %v, deleting %v, protected %v; want the snapshot kept while it is restored", there, deleting,
			protected)
	}
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	for _, claim := range []*objects.Claim{first, second} {
		if got := env.volumeOnDisk(env.WaitBound(claim)).Source.SnapshotID; got != during.Handle {
			t.Errorf("restored from %q, want %q", got, during.Handle)
		}
	}
	env.waitNoSnapshot(during)

	env.WaitBound(env.CreateClaim(class, fixture.FromSnapshot(after.Name)))
	env.waitUnprotected(after)
	env.deleteVolumeSnapshot(after)
	if there, _, _ := env.snapshotState(after); there {
		t.Error("a snapshot that was restored cannot be deleted")
	}
}

// TestSnapshotProtectionSurvivesRestart expects the next process to remove the first process's finalizer.
func TestSnapshotProtectionSurvivesRestart(t *testing.T) {
	suite.Deep(t, suite.Variant)
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	env := newEnvironment(t)
	flags := append(fixture.FastRetries(), "--snapshot-orphan-sweep-interval=500ms")
	car := env.StartSidecar(flags...)
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	original := env.WaitBound(env.CreateClaim(class))
	finished, abandoned := env.CreateSnapshot(original, nil), env.CreateSnapshot(original, nil)
	env.Must(env.MockDriver.SetFaults(env.Ctx, fixture.DelayCreateVolume(true, time.Minute)))
	claims := []*objects.Claim{env.CreateClaim(class, fixture.FromSnapshot(finished.Name)),
		env.CreateClaim(class, fixture.FromSnapshot(abandoned.Name))}
	for _, claim := range claims {
		env.waitCreateCall(claim)
	}
	car.Kill()
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	for _, snapshot := range []*objects.Snapshot{finished, abandoned} {
		env.deleteVolumeSnapshot(snapshot)
	}
	env.MustDeleteClaim(claims[1])
	env.Must(car.Restart(flags...))
	if got := env.volumeOnDisk(env.WaitBound(claims[0])).Source.SnapshotID; got != finished.Handle {
		t.Errorf("restored from %q, want %q", got, finished.Handle)
	}
	env.WaitClaim(claims[1], "gone", fixture.ClaimIsGone)
	env.waitNoSnapshot(finished)
	env.waitNoSnapshot(abandoned)
}

// TestStaleSnapshotFinalizerIsRemoved has snapshots with the finalizer of an uninstalled external-provisioner, and a
// sidecar with and without provisioning.
func TestStaleSnapshotFinalizerIsRemoved(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	for _, provisions := range []string{"true", "false"} {
		t.Run("--provision="+provisions, func(t *testing.T) {
			if provisions != "true" {
				suite.Deep(t, suite.Variant)
			}
			t.Parallel()
			env := newEnvironment(t)
			car := env.StartSidecar(fixture.FastRetries()...)
			env.InstallSnapshotCRDs()
			class := env.CreateStorageClass()
			original := env.WaitBound(env.CreateClaim(class))
			living, deleted, contentGone := env.CreateSnapshot(original, withStaleFinalizer), env.CreateSnapshot(original,
				withStaleFinalizer), env.CreateSnapshot(original, withStaleFinalizer)
			used, foreign := env.CreateSnapshot(original, withStaleFinalizer), env.CreateSnapshot(original,
				func(snapshot *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
					withStaleFinalizer(snapshot, c)
					c.Spec.Driver = "another.csi.example.com"
				})
			t.Cleanup(func() {
				_, _ = env.Snapshots.VolumeSnapshots(env.Namespace).Patch(env.CleanupContext(), foreign.Name,
					"application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			})
			// a class that does not exist, so that no provisioner ends it
			pending := env.CreateClaim("of-nobody", fixture.FromSnapshot(used.Name))
			env.deleteVolumeSnapshot(deleted)
			env.deleteVolumeSnapshot(contentGone)
			env.Must(env.Snapshots.VolumeSnapshotContents().Delete(env.Ctx, contentGone.Content, metav1.DeleteOptions{}))

			env.RestartSidecar(car, append(fixture.FastRetries(), "--snapshot-orphan-sweep-interval=200ms",
				"--provision="+provisions)...)
			env.waitNoSnapshot(deleted)
			env.waitNoSnapshot(contentGone)
			env.waitUnprotected(living)
			for _, snapshot := range []*objects.Snapshot{used, foreign} {
				if _, _, protected := env.snapshotState(snapshot); !protected {
					t.Errorf("VolumeSnapshot %s was freed", snapshot.Name)
				}
			}
			env.MustDeleteClaim(pending)
			env.waitUnprotected(used)
			if _, _, protected := env.snapshotState(foreign); !protected {
				t.Error("another driver's VolumeSnapshot was freed")
			}
		})
	}
}

var releasedSnapshots = regexp.MustCompile(`(?m)^[1-9]\d* VolumeSnapshots? (was|were) released$`)

// TestUninstallReleasesSourceFinalizers covers snapshots and cloned claims.
func TestUninstallReleasesSourceFinalizers(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(append(fixture.FastRetries(), "--snapshot-orphan-sweep-interval=0")...)
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	original := env.WaitBound(env.CreateClaim(class))
	env.WaitBound(env.CreateClaim(class, fixture.CloneOf(original.BoundClaim)))
	snapshot := env.CreateSnapshot(original, withStaleFinalizer)
	env.Must(car.Terminate())
	output, err := env.ReleaseFinalizers("--in-flight-quiet-period=2s")
	// The number is not certain: each driver releases terminating snapshots without content, here those of other tests.
	if err != nil || !releasedSnapshots.MatchString(output) || !strings.Contains(output, "1 cloned claim was released") {
		t.Errorf("%v: %s", err, output)
	}
	env.waitUnprotected(snapshot)
	env.MustDeleteClaim(original.BoundClaim)
	env.WaitClaim(original.BoundClaim, "gone", fixture.ClaimIsGone)
}

// TestUninstallKeepsSourceOfVolumeInFlight: the next run repeats the request of a clone in doubt, for which the driver
// needs the source.
func TestUninstallKeepsSourceOfVolumeInFlight(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass()
	original := env.WaitBound(env.CreateClaim(class))
	env.Must(env.MockDriver.SetFaults(env.Ctx, failWithCode("Internal")))
	clone := env.CreateClaim(class, fixture.CloneOf(original.BoundClaim))
	env.Eventually("the clone is in doubt", func() bool { return len(env.CreateCalls(clone)) > 1 })
	for _, claim := range []*objects.Claim{clone, original.BoundClaim} {
		env.MustDeleteClaim(claim)
	}
	env.WaitClaim(clone, "gone", fixture.ClaimIsGone)
	env.Must(car.Terminate())
	output, err := env.ReleaseFinalizers("--in-flight-quiet-period=2s")
	if err == nil {
		t.Error("the release succeeds, and a volume is in flight")
	}
	env.ExpectOutput(output, "volume "+fixture.PVName(clone)+", for claim "+env.Namespace+"/"+clone.Name+", is in flight",
		"PersistentVolumeClaim "+env.Namespace+"/"+original.BoundClaim.Name+" keeps its finalizer", "1 PV was released")
	if pv, err := original.PV(env.Ctx); err != nil || fixture.HasFinalizer(pv) {
		t.Errorf("the source's PV: %v, %v", err, pv.Finalizers)
	}
	env.WaitClaim(original.BoundClaim, "kept for the clone", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.DeletionTimestamp != nil && slices.Contains(now.Finalizers, request.CloningFinalizer)
	})

	env.RunPlugin("settle", fixture.PVName(clone), "--yes")
	if output, err = env.ReleaseFinalizers("--in-flight-quiet-period=2s"); err != nil || env.IsInFlight(clone) {
		t.Errorf("%v: %s", err, output)
	}
	env.ExpectOutput(output, "1 cloned claim was released")
	env.WaitClaim(original.BoundClaim, "gone", fixture.ClaimIsGone)
}

// TestProvisionRestoresWithoutPermissionToUpdateSnapshots uses the rules of external-provisioner before 6.2.
func TestProvisionRestoresWithoutPermissionToUpdateSnapshots(t *testing.T) {
	suite.Deep(t, suite.Variant)
	fixture.NewestOnly(t, fixture.AboutRequests)
	t.Parallel()
	env := newForRole(t, "", mockdriver.Options{})
	rules := fixture.StockProvisionerRules("patch")
	for i := range rules {
		if slices.Contains(rules[i].Resources, "volumesnapshots") {
			rules[i].Verbs = []string{"get"}
		}
	}
	env.SetRules(rules)
	car := env.StartSidecar(fixture.FastRetries()...)
	env.Must(car.WaitLog(env.WithTimeout(),
		"Preflight: may not update volumesnapshots: a VolumeSnapshot can be deleted while a volume is restored from it"))
	env.Must(car.WaitLog(env.WithTimeout(),
		"Preflight: may not list volumesnapshots: "+
			"VolumeSnapshots that a provisioner left with its finalizer cannot be deleted"))
	env.InstallSnapshotCRDs()
	class := env.CreateStorageClass()
	snapshot := env.CreateSnapshot(env.WaitBound(env.CreateClaim(class)), nil)
	env.WaitBound(env.CreateClaim(class, fixture.FromSnapshot(snapshot.Name)))
	if _, _, protected := env.snapshotState(snapshot); protected {
		t.Error("protected without the right to")
	}
}
