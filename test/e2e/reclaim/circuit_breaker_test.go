//go:build unix

package reclaim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestCircuitBreakerStopsMassDeletion releases many volumes within seconds, as the deletion of a namespace does. The
// breaker allows a quarter of them.
func TestCircuitBreakerStopsMassDeletion(t *testing.T) {
	suite.Deep(t, suite.Load)
	fixture.NewestOnly(t, fixture.AboutLoad)
	t.Parallel()
	volumes, allowed := fixture.Size(2000, 200), fixture.Size(500, 50)
	env := newEnvironment(t)
	car := env.StartSidecar(append(fixture.FastRetries(), "--leader-election",
		"--leader-election-namespace="+env.Namespace,
		// With an identity of its own, it leads at once after it was killed.
		"--leader-election-identity=reclaimer",
		// A window that all deletions are within, however slowly they come.
		fmt.Sprintf("--brake-deletions=%d", allowed), "--brake-window=30m")...)
	vols := env.MakeVolumes(volumes, func(int) objects.Spec { return objects.Spec{Dynamic: true} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	began := time.Now()
	env.Must(env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).DeleteCollection(env.Ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}))
	lease, annotation := env.LeaseName(), ""
	env.Eventually("the Lease has the breaker's annotation", func() bool {
		o, err := env.Client.CoordinationV1().Leases(env.Namespace).Get(env.Ctx, lease, metav1.GetOptions{})
		env.Must(err)
		annotation = o.Annotations[reclaim.BrakeAnnotation]
		return annotation != ""
	})
	env.WaitAllPVs(vols, "released",
		func(pv *v1.PersistentVolume) bool { return pv == nil || pv.Status.Phase == v1.VolumeReleased })
	t.Logf("%d claims were gone after %v; the Lease says %q", volumes, time.Since(began).Round(time.Millisecond),
		annotation)
	env.WaitMetric(car, "csi_reclaimer_braked", "1")
	env.expectDeletionsPaused(car, volumes, allowed)
	// Protection continues.
	late := env.MakeVolume(objects.Spec{})
	env.WaitProtected(late)
	// A restart does not reset the breaker.
	car.Kill()
	env.Must(car.Restart())
	env.Must(car.WaitReady(env.WithTimeout()))
	env.WaitEvent(v1.ObjectReference{Kind: "Lease", Name: lease}, "DeletionsPaused")
	env.WaitMetric(car, "csi_reclaimer_braked", "1")
	env.expectDeletionsPaused(car, volumes, allowed)

	_, err := env.Client.CoordinationV1().Leases(env.Namespace).Patch(env.Ctx, lease, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, reclaim.BrakeAnnotation), metav1.PatchOptions{})
	env.Must(err)
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	env.WaitMetric(car, "csi_reclaimer_braked", "0")
	disk, calls := env.VolumesOnDisk(), env.DeleteCallCounts()
	for _, vol := range vols {
		if disk[vol.Handle] || calls[vol.Handle] != 1 {
			t.Errorf("volume %s: on disk %v, %d DeleteVolume calls, want 1", vol.Handle, disk[vol.Handle], calls[vol.Handle])
		}
	}
	env.ExpectKept(late)
}

// expectDeletionsPaused waits until all volumes that are not deleted wait for the brake, and checks that no more than
// the allowed ones were deleted, and that it stays so while the sidecar does other work.
func (env *environment) expectDeletionsPaused(car *program.Program, volumes, allowed int) {
	env.T.Helper()
	before := 0
	env.Eventually("no deletion is under way", func() bool {
		before = len(env.DeleteCallCounts())
		text, err := car.Get(env.Ctx, "/metrics")
		env.Must(err)
		return strings.Contains(text, fmt.Sprintf("csi_reclaimer_waiting_pvs{driver_name=%q,reason=%q} %d\n", env.Driver,
			"DeletionsPaused", volumes-before))
	})
	if before > allowed {
		env.T.Fatalf("%d volumes were deleted, %d are allowed", before, allowed)
	}
	for range 3 {
		vol := env.MakeVolume(objects.Spec{})
		env.WaitProtected(vol)
	}
	if after := len(env.DeleteCallCounts()); after != before {
		env.T.Errorf("%d volumes were deleted while the brake was on", after-before)
	}
	env.T.Logf("stopped after %d deletions", before)
}

// TestDeletionsAreStoppedByHandWithoutLeaderElection annotates the Lease, which exists before any deletion.
func TestDeletionsAreStoppedByHandWithoutLeaderElection(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(append(fixture.FastRetries(), "--leader-election-namespace="+env.Namespace,
		"--brake-deletions=100")...)
	leases := env.Client.CoordinationV1().Leases(env.Namespace)
	env.Eventually("the Lease exists", func() bool {
		o, err := leases.Get(env.Ctx, env.LeaseName(), metav1.GetOptions{})
		return err == nil && len(o.Annotations) == 0
	})
	vols := env.MakeVolumes(3, func(int) objects.Spec { return objects.Spec{} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	_, err := leases.Patch(env.Ctx, env.LeaseName(), types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"an upgrade"}}}`, reclaim.BrakeAnnotation), metav1.PatchOptions{})
	env.Must(err)
	env.WaitMetric(car, "csi_reclaimer_braked", "1")
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.expectDeletionsPaused(car, len(vols), 0)
}

// TestCircuitBreakerWorksWithoutLeaderElection lets the sidecar create its Lease.
func TestCircuitBreakerWorksWithoutLeaderElection(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(append(fixture.FastRetries(), "--leader-election-namespace="+env.Namespace,
		"--brake-deletions=2")...)
	vols := env.MakeVolumes(6, func(int) objects.Spec { return objects.Spec{} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.Eventually("the Lease exists and has the breaker's annotation", func() bool {
		o, err := env.Client.CoordinationV1().Leases(env.Namespace).Get(env.Ctx, env.LeaseName(), metav1.GetOptions{})
		return err == nil && o.Annotations[reclaim.BrakeAnnotation] != ""
	})
	env.expectDeletionsPaused(car, len(vols), 2)
}
