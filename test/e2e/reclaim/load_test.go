//go:build unix

package reclaim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestCircuitBreakerStopsMassDeletion releases many volumes within seconds, as the deletion of a namespace does. The
// breaker allows a quarter of them.
func TestCircuitBreakerStopsMassDeletion(t *testing.T) {
	fixture.Begin(t, suite.Load, fixture.AboutLoad)
	volumes, allowed := fixture.Size(2000, 200), fixture.Size(500, 50)
	env := &environment{fixture.New(t)}
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
		annotation = env.Leases().Get(lease).Annotations[reclaim.BrakeAnnotation]
		return annotation != ""
	})
	env.WaitAllPVs(vols, "released",
		func(pv *v1.PersistentVolume) bool { return pv == nil || pv.Status.Phase == v1.VolumeReleased })
	t.Logf("%d claims were gone after %v; the Lease says %q", volumes, time.Since(began).Round(time.Millisecond),
		annotation)
	env.WaitMetric(car, "csi_reclaimer_braked", "1")
	env.expectDeletionsPaused(car, volumes, allowed)
	// Protection continues.
	late := env.MakeProtected(objects.Spec{})
	// A restart does not reset the breaker.
	car.Kill()
	env.Must(car.Restart())
	env.Must(car.WaitReady(env.WithTimeout()))
	env.WaitEvent(v1.ObjectReference{Kind: "Lease", Name: lease}, "DeletionsPaused")
	env.WaitMetric(car, "csi_reclaimer_braked", "1")
	env.expectDeletionsPaused(car, volumes, allowed)

	env.Leases().Annotate(lease, reclaim.BrakeAnnotation, "")
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	env.WaitMetric(car, "csi_reclaimer_braked", "0")
	env.ExpectDeletedOnce(vols...)
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
		env.MakeProtected(objects.Spec{})
	}
	if after := len(env.DeleteCallCounts()); after != before {
		env.T.Errorf("%d volumes were deleted while the brake was on", after-before)
	}
	env.T.Logf("stopped after %d deletions", before)
}

// TestDeletionsAreStoppedByHandWithoutLeaderElection annotates the Lease, which exists before any deletion.
func TestDeletionsAreStoppedByHandWithoutLeaderElection(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	car := env.StartSidecar(append(fixture.FastRetries(), "--leader-election-namespace="+env.Namespace,
		"--brake-deletions=100")...)
	env.Eventually("the Lease exists", func() bool {
		o := env.Leases().Find(env.LeaseName())
		return o != nil && len(o.Annotations) == 0
	})
	vols := env.MakeVolumes(3, func(int) objects.Spec { return objects.Spec{} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	env.Leases().Annotate(env.LeaseName(), reclaim.BrakeAnnotation, "an upgrade")
	env.WaitMetric(car, "csi_reclaimer_braked", "1")
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.expectDeletionsPaused(car, len(vols), 0)
}

// TestCircuitBreakerWorksWithoutLeaderElection lets the sidecar create its Lease.
func TestCircuitBreakerWorksWithoutLeaderElection(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	car := env.StartSidecar(append(fixture.FastRetries(), "--leader-election-namespace="+env.Namespace,
		"--brake-deletions=2")...)
	vols := env.MakeVolumes(6, func(int) objects.Spec { return objects.Spec{} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.Eventually("the Lease exists and has the breaker's annotation", func() bool {
		o := env.Leases().Find(env.LeaseName())
		return o != nil && o.Annotations[reclaim.BrakeAnnotation] != ""
	})
	env.expectDeletionsPaused(car, len(vols), 2)
}

// apiRequests returns the sidecar's requests for one PV's name.
func (env *environment) apiRequests(name string) (writes, reads []string) {
	env.T.Helper()
	for _, e := range env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		return e.Name == name && strings.HasPrefix(e.Resource, "persistentvolume")
	}) {
		what := fmt.Sprintf("%s %s %d", e.Verb, e.Resource, e.Code)
		if e.Verb == "get" {
			reads = append(reads, what)
		} else {
			writes = append(writes, what)
		}
	}
	return writes, reads
}

// TestRequestBudgetUnderLoad deletes many volumes at once, so that the sidecar works from stale caches, and counts the
// calls to the driver and the API server.
func TestRequestBudgetUnderLoad(t *testing.T) {
	suite.Deep(t, suite.Load)
	fixture.AboutRequests.Require(t)
	volumes := fixture.Size(500, 100)
	cases := map[string]struct {
		pvFirst bool
		writes  int // for each volume, without the write that protects it
	}{
		"PV first":    {true, 1},
		"claim first": {false, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			env := &environment{fixture.New(t)}
			env.StartSidecar()
			vols := env.MakeVolumes(volumes, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
			env.WaitAllPVs(vols, "protected", fixture.IsProtected)
			protected := env.settledWrites(vols, volumes)
			env.ForEachVolume(vols, func(vol *objects.Volume) error {
				if c.pvFirst {
					if err := vol.DeletePV(env.Ctx); err != nil {
						return err
					}
				}
				return vol.DeleteClaim(env.Ctx)
			})
			env.WaitAllPVs(vols, "gone", fixture.IsGone)
			env.ExpectDeletedOnce(vols...)
			all := env.settledWrites(vols, volumes*(1+c.writes))
			if len(protected) != volumes || len(all) != volumes*(1+c.writes) {
				t.Errorf("%d writes to protect and %d to reclaim %d volumes, want %d and %d",
					len(protected), len(all)-len(protected), volumes, volumes, volumes*c.writes)
			}
			reads := env.reads(vols)
			each := func(n int) float64 { return float64(n) / float64(volumes) }
			t.Logf("%d volumes: %.2f writes each to protect, %.2f to reclaim; %.2f GETs; %.2f DeleteVolume calls", volumes,
				each(len(protected)), each(len(all)-len(protected)), each(reads), each(fixture.Sum(env.DeleteCallCounts())))
			// The PV, and the claim where the PV was released before the watch showed the claim's end.
			if reads < volumes || reads > 2*volumes {
				t.Errorf("%d GETs for %d volumes, want one or two each; more than two: %v", reads, volumes,
					env.readMoreThanTwice(vols))
			}
			for _, e := range all {
				if e.Code != 200 {
					t.Errorf("%s %s %s was answered %d", e.Verb, e.Resource, e.Name, e.Code)
				}
			}
		})
	}
}

// settledWrites returns the sidecar's writes to these PVs once the audit log has at least this many, and the sidecar
// has dealt with a volume that came after them.
func (env *environment) settledWrites(vols []*objects.Volume, least int) (writes []controlplane.AuditEvent) {
	env.T.Helper()
	env.Barrier()
	names := fixture.Names(vols)
	env.Eventually(fmt.Sprintf("%d writes to the PVs", least), func() bool {
		writes = slices.DeleteFunc(env.WritesTo(least, "persistentvolumes"),
			func(e controlplane.AuditEvent) bool { return !names[e.Name] })
		return len(writes) >= least
	})
	return writes
}

// reads counts the sidecar's GETs of these PVs and their claims.
func (env *environment) reads(vols []*objects.Volume) int {
	env.T.Helper()
	names := fixture.Names(vols)
	return len(env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		return e.Verb == "get" && names[e.Name] && strings.HasPrefix(e.Resource, "persistentvolume")
	}))
}

// readMoreThanTwice returns the reads of volumes with more than two reads of claim and PV together.
func (env *environment) readMoreThanTwice(vols []*objects.Volume) map[string][]string {
	env.T.Helper()
	often := map[string][]string{}
	for _, vol := range vols {
		often[vol.Name] = nil
	}
	env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		if _, ours := often[e.Name]; ours && e.Verb == "get" {
			often[e.Name] = append(often[e.Name], fmt.Sprint(e.Resource, " ", e.Code, " ", e.Received.Format("05.000")))
		}
		return false
	})
	maps.DeleteFunc(often, func(_ string, reads []string) bool { return len(reads) <= 2 })
	return often
}
