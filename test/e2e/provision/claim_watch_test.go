//go:build unix

package provision

import (
	"slices"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
)

// TestWatchedClaimDeletionSkipsRead expects the deletion to read only the PV if the watch has shown the claim's end. A
// restored claim that names the PV still keeps its volume.
func TestWatchedClaimDeletionSkipsRead(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutRequests)
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass()
	for name, restored := range map[string]bool{"gone": false, "restored": true} {
		t.Run(name, func(t *testing.T) {
			env := env.forSubtest(t)
			vol := env.WaitBound(env.CreateClaim(class))
			env.WritesTo(1, "persistentvolumes") // the audit log then has the reads before the volume was created
			provisioned := len(env.readClaimAndPV(vol))
			env.AnnotatePV(vol.Volume, volume.HoldAnnotation, "until the watch of claims has shown what follows")
			deleted := time.Now()
			env.MustDeleteClaim(vol.BoundClaim)
			env.WaitPV(vol.Volume, "released", fixture.IsReleased)
			claims := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace)
			if restored {
				_, err := claims.Create(env.Ctx, &v1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Name: vol.BoundClaim.Name},
					Spec: v1.PersistentVolumeClaimSpec{
						VolumeName: vol.Name, StorageClassName: &class, AccessModes: vol.BoundPV.Spec.AccessModes,
						Resources: v1.VolumeResourceRequirements{Requests: vol.BoundPV.Spec.Capacity},
					},
				}, metav1.CreateOptions{})
				env.Must(err)
			}
			env.WaitBound(env.CreateClaim(class)) // a later event of the same watch
			unheld := time.Now()
			env.AnnotatePV(vol.Volume, volume.HoldAnnotation, "")
			if restored {
				env.WaitPVEvent(vol.Volume, "ClaimNamesPV", "")
				if !env.OnDisk(vol.Handle) {
					t.Error("WRONG DELETE: the restored claim names the PV")
				}
				env.Must(claims.Delete(env.Ctx, vol.BoundClaim.Name, metav1.DeleteOptions{}))
			}
			env.Must(vol.WaitGone(env.WithTimeout()))
			old := time.Since(deleted) >= session.LiveFor // an end that was watched so long ago is read again
			env.Eventually("the end of the PV is in the audit log", func() bool {
				return slices.ContainsFunc(env.WritesTo(0, "persistentvolumes"), func(e controlplane.AuditEvent) bool {
					return e.Name == vol.Name && !e.Received.Before(unheld)
				})
			})
			read := env.readClaimAndPV(vol)[provisioned:]
			if got := slices.Contains(read, "persistentvolumeclaims"); got != restored && (!got || !old) ||
				!slices.Contains(read, "persistentvolumes") {
				t.Errorf("read %q to delete the volume; want the claim read: %v", read, restored)
			}
		})
	}
}

// readClaimAndPV returns which of a volume's claim and PV the sidecar has read, by their resources.
func (env *environment) readClaimAndPV(vol *fixture.Provisioned) (resources []string) {
	env.T.Helper()
	_, err := env.Plane.AuditEventsOf(env.User, func(e controlplane.AuditEvent) bool {
		if e.Verb == "get" && (e.Name == vol.Name || e.Name == vol.BoundClaim.Name) {
			resources = append(resources, e.Resource)
		}
		return false
	})
	env.Must(err)
	return resources
}
