//go:build unix

package reclaim

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestFailoverFinishesDeletion kills the leader after the driver deleted the volume and before the PV is released.
func TestFailoverFinishesDeletion(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	replica := func(flags []string) []string {
		return slices.Concat(fixture.FastRetries(),
			[]string{"--leader-election", "--leader-election-namespace=" + env.Namespace}, flags)
	}
	leader := env.StartSidecar(replica(fixture.NextReplicaFlags("replica-1"))...)
	env.Must(leader.WaitLog(env.WithTimeout(), "Became the leader"))
	follower := env.StartSidecar(replica(fixture.NextReplicaFlags("replica-2"))...)
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol)
	env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", First: 1, Action: faults.Hang, AfterWork: true},
	}}))
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.DeleteClaim(env.Ctx))
	ctx := env.WithTimeout()
	for env.OnDisk(vol.Handle) {
		select {
		case <-ctx.Done():
			t.Fatal("the leader did not have the volume deleted")
		case <-time.After(5 * time.Millisecond):
		}
	}
	leader.Kill()
	env.HandOverLease(env.LeaseName(), "replica-1")
	env.Must(follower.WaitLog(env.WithTimeout(), "Became the leader"))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 2)
}
