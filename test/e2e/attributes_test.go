//go:build unix

package e2e

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestAClusterWithoutVolumeAttributesClasses: the log says so at the start, a claim that names one says that in its Event,
// and all others get their volume.
func TestAClusterWithoutVolumeAttributesClasses(t *testing.T) {
	t.Parallel()
	s := newGuardPlane(t, version, controlplane.Options{
		APIServerArgs: []string{"--runtime-config=storage.k8s.io/v1/volumeattributesclasses=false"},
		Controllers:   []string{"*", "-volumeattributesclass-protection-controller"},
	})
	s.useDriver(mockdriver.Options{Name: "without-attributes.csi-reclaimer.io"})
	s.account("csi-reclaimer")
	s.grant("owner")
	car := s.sidecar(eager()...)
	s.must(car.WaitLog(s.soon(), "VolumeAttributesClass is off"))
	class := s.class()
	vol := s.bound(s.claim(class))
	gold := "gold"
	waits := s.claim(class, func(spec *storage.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &gold }
	})
	s.waitTold(waits, "ProvisioningFailed", "does not serve that API")
	s.deleteClaim(waits)
	s.deleteClaim(vol.claim)
	s.must(vol.WaitGone(s.soon()))
	s.nothingLeft(waits)
	s.nothingLeft(vol.claim)
}

// TestAClaimForAPopulatorIsLeftToIt: nothing is made, and an Event says who would.
func TestAClaimForAPopulatorIsLeftToIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	group := "backup.example.com"
	claim := s.claim(s.class(), func(spec *storage.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: &group, Kind: "Backup", Name: "monday"}
		}
	})
	s.waitTold(claim, "LeftToPopulator", `Backup "monday"`)
	s.deleteClaim(claim)
	s.nothingLeft(claim)
	if made := s.creations(claim); len(made) > 0 {
		t.Errorf("the driver was asked: %+v", made)
	}
}
