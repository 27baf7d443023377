//go:build unix

package provision

import (
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
)

// TestDriverReplacedUnderRunningSidecar replaces the driver by one with other capabilities on the same socket.
func TestDriverReplacedUnderRunningSidecar(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	t.Run("clones", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", mockdriver.Options{})
		env.Must(env.MockDriver.Restart(env.Ctx, "--disable-capabilities=CLONE_VOLUME"))
		car := env.StartSidecar(fixture.FastRetries()...)
		pid := car.PID()
		class := env.CreateStorageClass()
		original := env.WaitBound(env.CreateClaim(class))
		clone := env.CreateClaim(class, fixture.CloneOf(original.BoundClaim))
		env.WaitClaimEvent(clone, "ProvisioningFailed", "CLONE_VOLUME")
		env.Must(env.MockDriver.Restart(env.Ctx))
		want := backend.Source{VolumeID: original.Handle}
		if there := env.volumeOnDisk(env.WaitBound(clone)); there.Source != want {
			t.Errorf("the volume is made from %+v", there.Source)
		}
		if car.PID() != pid || car.Err() != nil {
			t.Error("the sidecar was restarted")
		}
	})
	t.Run("topology", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", mockdriver.Options{})
		car := env.StartSidecar(fixture.FastRetries()...)
		class := env.CreateStorageClass()
		env.WaitBound(env.CreateClaim(class))
		env.CreateNode(map[string]string{"zone": "a"})
		env.Must(env.MockDriver.Restart(env.Ctx, "--topology=zone=a"))
		claim := env.CreateClaim(class)
		select {
		case <-car.Done():
		case <-env.WithTimeout().Done():
			t.Fatal("the sidecar goes on with a driver that it was not set up for")
		}
		if log := car.LogTail(3); car.Err() == nil || !strings.Contains(log, "VOLUME_ACCESSIBILITY_CONSTRAINTS") {
			t.Errorf("it ended with %v, and its log with:\n%s", car.Err(), log)
		}
		if n := len(env.CreateCalls(claim)); n != 0 {
			t.Errorf("%d CreateVolume calls without topology", n)
		}
		env.Must(car.Restart()) // as the kubelet does
		affinity := env.WaitBound(claim).BoundPV.Spec.NodeAffinity
		if affinity == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
			t.Errorf("the PV has the node affinity %+v", affinity)
		}
	})
	t.Run("another driver", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", mockdriver.Options{})
		car := env.StartSidecar(fixture.FastRetries()...)
		vol := env.WaitBound(env.CreateClaim(env.CreateStorageClass()))
		env.Must(env.MockDriver.Restart(env.Ctx, "--name=other.csi.example.com"))
		env.MustDeleteClaim(vol.BoundClaim)
		select {
		case <-car.Done():
		case <-env.WithTimeout().Done():
			t.Fatal("the sidecar goes on with another driver")
		}
		if log := car.LogTail(3); car.Err() == nil || !strings.Contains(log, "other.csi.example.com") {
			t.Errorf("it ended with %v, and its log with:\n%s", car.Err(), log)
		}
		if n := env.DeleteCallCounts()[vol.Handle]; n != 0 {
			t.Errorf("%d DeleteVolume calls to another driver", n)
		}
		env.Must(env.MockDriver.Restart(env.Ctx))
		env.Must(car.Restart())
		env.Must(vol.WaitGone(env.WithTimeout()))
	})
}
