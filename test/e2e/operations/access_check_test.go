//go:build unix

package operations

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestStockProvisionerPermissionsAreSufficient(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutRequests)
	t.Parallel()
	env := newForRole(t, "", mockdriver.Options{})
	env.SetRules(fixture.StockProvisionerRules("patch"))
	car := env.StartSidecar(fixture.FastRetries()...)
	env.Barrier()
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol)
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	class := env.CreateStorageClass()
	made := env.WaitBound(env.CreateClaim(class))
	// That sidecar may update claims, and not patch them: the source of a clone is protected all the same.
	clone := env.WaitBound(env.CreateClaim(class, fixture.CloneOf(made.BoundClaim)))
	env.WaitClaim(made.BoundClaim, "protected", func(claim *v1.PersistentVolumeClaim) bool {
		return claim != nil && slices.Contains(claim.Finalizers, request.CloningFinalizer)
	})
	for _, vol := range []*fixture.Provisioned{made, clone} {
		env.MustDeleteClaim(vol.BoundClaim)
		env.Must(vol.WaitGone(env.WithTimeout()))
		env.ExpectNothingLeft(vol.BoundClaim)
	}
	// csi-reclaimer runs without its additional features, and says so.
	env.Must(car.WaitLog(env.WithTimeout(), "Preflight: may not get volumeattributesclasses"))
	log, err := car.Log()
	env.Must(err)
	for line := range strings.Lines(log) {
		if strings.Contains(line, "Preflight: may not") && !strings.Contains(line, "get volumeattributesclasses") &&
			!strings.Contains(line, "get mutatingadmissionpolic") {
			t.Errorf("something is missing: %s", line)
		}
	}
}

func TestOldStockProvisionerPermissionsLackPatch(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutRequests)
	t.Parallel()
	env := newForRole(t, "", mockdriver.Options{})
	env.SetRules(fixture.StockProvisionerRules())
	car := env.StartSidecar(fixture.FastRetries()...) // ready: no deletion is unsafe
	env.Must(car.WaitLog(env.WithTimeout(), `Preflight: may not patch persistentvolumes: no PV is protected`))
	if log := car.LogTail(200); !strings.Contains(log,
		`{apiGroups: [\"\"], resources: [\"persistentvolumes\"], verbs: [\"patch\"]}`) {
		t.Errorf("the rule to add is not named:\n%s", log)
	}
}

func TestReadinessFailsWithoutPermissionToReadClaims(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newForRole(t, "", mockdriver.Options{})
	all := fixture.StockProvisionerRules("patch")
	env.SetRules(append(all[:1:1], all[2:]...)) // no claims
	car := env.LaunchSidecar(fixture.FastRetries()...)
	env.Must(car.WaitLog(env.WithTimeout(), "Preflight: may not get persistentvolumeclaims"))
	env.waitUnready(car, "persistentvolumeclaims")
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol) // protection needs no claims
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPVEvent(vol, "APIReadFailed", "")
	env.ExpectKept(vol)
	env.SetRules(all)
	granted := time.Now()
	env.Must(car.WaitReady(env.WithTimeout()))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
	t.Logf("green and at work %v after the right was granted", time.Since(granted).Round(time.Second))
}

// waitUnready waits until /readyz is red and gives this reason, which comes after the program has logged it.
func (env *environment) waitUnready(car *program.Program, why string) {
	env.T.Helper()
	env.Eventually("/readyz is red because of "+why, func() bool {
		_, err := car.Get(env.Ctx, "/readyz")
		return err != nil && strings.Contains(err.Error(), why)
	})
}

func TestDriverWithoutDeleteVolumeIsIgnored(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	env := newForRole(t, "owner", mockdriver.Options{Profile: "static", Args: []string{"--static-volume=there"}})
	car := env.LaunchSidecar()
	env.Must(car.WaitLog(env.WithTimeout(), "does not advertise CREATE_DELETE_VOLUME"))
	env.waitUnready(car, "CREATE_DELETE_VOLUME")
	vol := env.MakeVolume(objects.Spec{Handle: "there"})
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout())) // no finalizer of ours holds it forever
	if events := env.WritesToPVs(env.User, []*objects.Volume{vol}); len(events) > 0 {
		t.Errorf("wrote %v", events)
	}
}
