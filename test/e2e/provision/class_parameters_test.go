//go:build unix

package provision

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestProvisionSetsSecretForControllerModifyVolume uses classes that name a Secret for ControllerModifyVolume.
// external-resizer reads it from the PV's annotations.
func TestProvisionSetsSecretForControllerModifyVolume(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	const (
		annotation = "volume.kubernetes.io/controller-modify-secret-"
		parameter  = "csi.storage.k8s.io/controller-modify-secret-"
	)
	class := env.CreateStorageClass(func(c *objects.Class) {
		c.Parameters = map[string]string{parameter + "name": "of-${pvc.name}", parameter + "namespace": "${pvc.namespace}"}
	})
	vol := env.WaitBound(env.CreateClaim(class))
	if got := vol.BoundPV.Annotations; got[annotation+"name"] != "of-"+vol.BoundClaim.Name ||
		got[annotation+"namespace"] != env.Namespace {
		t.Errorf("annotations %v", got)
	}
	without := env.WaitBound(env.CreateClaim(env.CreateStorageClass()))
	if _, found := without.BoundPV.Annotations[annotation+"name"]; found {
		t.Errorf("annotations %v of a class that names no Secret", without.BoundPV.Annotations)
	}
}
