//go:build unix

package volumeguard

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
)

// TestNextVolumeGuardLeaderContinues kills the leader while PVs of an in-tree plugin are created.
// TestFormerPodSafetyLeaderMakesNoWrites shows for all controllers that a leader whose lease has run out writes
// nothing: they share one client.
func TestNextVolumeGuardLeaderContinues(t *testing.T) {
	fixture.NewestOnly(t, fixture.OwnVersions)
	t.Parallel()
	env := newInTreeEnvironment(t, controlplane.V1_30)
	env.ReplaceLeader(func(begin, end func()) {
		env.waitGuarded(env.folder())
		begin()
		env.folders(20)
		end()
		env.folders(20)
	})
}
