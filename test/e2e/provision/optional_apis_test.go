//go:build unix

package provision

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestProvisionWithoutVolumeAttributesClassAPI expects a log line at the start, an Event on a claim that names a class,
// and volumes for all others.
func TestProvisionWithoutVolumeAttributesClassAPI(t *testing.T) {
	fixture.NewestOnly(t, fixture.OwnVersions)
	t.Parallel()
	env := newWithControlPlane(t, fixture.Version(), controlplane.Options{
		APIServerArgs: []string{"--runtime-config=storage.k8s.io/v1/volumeattributesclasses=false"},
		Controllers:   []string{"*", "-volumeattributesclass-protection-controller"},
	})
	env.UseDriver(mockdriver.Options{Name: "without-attributes.csi-reclaimer.io"})
	env.CreateServiceAccount("csi-reclaimer")
	env.GrantRole("owner")
	car := env.StartSidecar(fixture.FastRetries()...)
	env.Must(car.WaitLog(env.WithTimeout(), "VolumeAttributesClass is off"))
	class := env.CreateStorageClass()
	vol := env.WaitBound(env.CreateClaim(class))
	gold := "gold"
	waits := env.CreateClaim(class, func(spec *objects.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &gold }
	})
	env.WaitClaimEvent(waits, "ProvisioningFailed", "does not serve that API")
	env.MustDeleteClaim(waits)
	env.MustDeleteClaim(vol.BoundClaim)
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectNothingLeft(waits)
	env.ExpectNothingLeft(vol.BoundClaim)
}

// TestProvisionIgnoresClaimForVolumePopulator expects no volume, and an Event that says who creates it.
func TestProvisionIgnoresClaimForVolumePopulator(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	group := "backup.example.com"
	claim := env.CreateClaim(env.CreateStorageClass(), func(spec *objects.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: &group, Kind: "Backup", Name: "monday"}
		}
	})
	env.WaitClaimEvent(claim, "LeftToPopulator", `Backup "monday"`)
	env.MustDeleteClaim(claim)
	env.ExpectNothingLeft(claim)
	if made := env.CreateCalls(claim); len(made) > 0 {
		t.Errorf("the driver was asked: %+v", made)
	}
}
