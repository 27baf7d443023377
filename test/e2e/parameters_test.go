//go:build unix

package e2e

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestProvisionNamesTheSecretToModifyWith has classes that name a Secret for ControllerModifyVolume, which external-resizer
// reads from the PV's annotations.
func TestProvisionNamesTheSecretToModifyWith(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	const annotation, parameter = "volume.kubernetes.io/controller-modify-secret-", "csi.storage.k8s.io/controller-modify-secret-"
	class := s.class(func(c *storage.Class) {
		c.Parameters = map[string]string{parameter + "name": "of-${pvc.name}", parameter + "namespace": "${pvc.namespace}"}
	})
	vol := s.bound(s.claim(class))
	if got := vol.pv.Annotations; got[annotation+"name"] != "of-"+vol.claim.Name || got[annotation+"namespace"] != s.Namespace {
		t.Errorf("annotations %v", got)
	}
	without := s.bound(s.claim(s.class()))
	if _, found := without.pv.Annotations[annotation+"name"]; found {
		t.Errorf("annotations %v of a class that names no Secret", without.pv.Annotations)
	}
}
