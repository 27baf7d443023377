//go:build unix

package volumeguard

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// TestFormerVolumeGuardLeaderWritesNothing creates PVs of an in-tree plugin when the former leader resumes: it would
// protect them as the leader does.
func TestFormerVolumeGuardLeaderWritesNothing(t *testing.T) {
	fixture.NewestOnly(t, fixture.OwnVersions)
	t.Parallel()
	env := newInTreeEnvironment(t, controlplane.V1_30)
	user, kubeconfig := env.SecondAccount("former")
	binary, err := fixture.VolumeGuardBinary()
	env.Must(err)
	former := env.StartReplica(program.Options{
		Name: fixture.VolumeGuardName, Binary: binary,
		Args: append([]string{"--kubeconfig=" + kubeconfig, "--leader-election-namespace=" + env.Namespace},
			fixture.ReplicaFlags("former")...),
	})
	next := env.startVolumeGuard(fixture.NextReplicaFlags("next")...)
	env.waitGuarded(env.folder())
	env.Must(former.Pause())
	env.Must(next.WaitLog(env.WithTimeout(), "Became the leader"))
	env.folders(20)

	resumed := time.Now()
	env.Must(former.Resume())
	env.folders(20)
	env.ExpectNoWritesAfter(former, user, resumed)
}
