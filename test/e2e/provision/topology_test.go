//go:build unix

package provision

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
)

// TestProvisionInTopologyOfSelectedNode uses a driver with volumes that are accessible in one topology segment.
func TestProvisionInTopologyOfSelectedNode(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	zone := map[string]string{"zone": "a"}
	zoned := mockdriver.Options{Args: []string{"--topology=zone=a"}}
	t.Run("late and immediate binding", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", zoned)
		env.StartSidecar(fixture.FastRetries()...)
		immediate := env.CreateClaim(env.CreateStorageClass())
		env.WaitClaimEvent(immediate, "ProvisioningFailed", "the driver is on no node yet")
		node := env.CreateNode(zone) // joins while the sidecar runs
		late := env.CreateClaim(env.CreateStorageClass(fixture.WithWaitForFirstConsumer), fixture.WithSelectedNode(node))
		for _, vol := range []*fixture.Provisioned{env.WaitBound(late), env.WaitBound(immediate)} {
			terms := vol.BoundPV.Spec.NodeAffinity.Required.NodeSelectorTerms
			if len(terms) != 1 || terms[0].MatchExpressions[0].Key != "zone" || terms[0].MatchExpressions[0].Values[0] != "a" {
				t.Errorf("PV %s is reachable from %+v", vol.BoundPV.Name, terms)
			}
			if n := len(env.CreateCalls(vol.BoundClaim)); n != 1 {
				t.Errorf("%d CreateVolume calls", n)
			}
		}
	})
	t.Run("a deleted node blocks no claim", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", zoned)
		car := env.StartSidecar(fixture.FastRetries()...)
		node := env.CreateNode(zone)
		env.Must(env.MockDriver.SetFaults(env.Ctx, fixture.DelayCreateVolume(true, 30*time.Second)))
		claim := env.CreateClaim(env.CreateStorageClass(fixture.WithWaitForFirstConsumer), fixture.WithSelectedNode(node))
		env.Eventually("the volume is on the disk", func() bool { return len(env.VolumesOnDisk()) == 1 })
		car.Kill()
		env.Must(env.Client.CoreV1().Nodes().Delete(env.Ctx, node, metav1.DeleteOptions{}))
		env.Must(env.Client.StorageV1().CSINodes().Delete(env.Ctx, node, metav1.DeleteOptions{}))
		env.MustDeleteClaim(claim)
		env.Must(env.MockDriver.ClearFaults(env.Ctx))
		env.Must(car.Restart())
		env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
		env.waitSettled(claim)
		env.waitVolumeGone(claim)
	})
}
