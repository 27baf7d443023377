//go:build unix

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// TestUpgradeWithVolumesInEveryPhase applies today's permissions under the previous release. Then today's csi-reclaimer
// takes over.
func TestUpgradeWithVolumesInEveryPhase(t *testing.T) {
	t.Parallel()
	from, to := before(t), today(t)
	env, old := start(t, from, to)
	finish := env.begin(phases())
	env.applyRights(to)
	env.Barrier() // the release before works on with today's permissions
	next := env.replace(old, to)
	finish(next)
}

// In TestRollbackWithVolumesInEveryPhase the previous release takes over from today's csi-reclaimer, and its
// permissions are applied afterwards.
func TestRollbackWithVolumesInEveryPhase(t *testing.T) {
	t.Parallel()
	from, to := today(t), before(t)
	env, old := start(t, from, to)
	finish := env.begin(phases())
	next := env.replace(old, to)
	env.applyRights(to)
	finish(next)
}

// begin brings volumes to phases of their life. finish has them go on under the replica that leads then, and judges
// how each of them ends.
func (env *environment) begin(all []phase) (finish func(leader *program.Program)) {
	env.T.Helper()
	var ends []func()
	for _, p := range all {
		ends = append(ends, p(env))
	}
	return func(leader *program.Program) {
		env.T.Helper()
		env.expectBrakeKept(leader)
		for _, end := range slices.Backward(ends) { // the last ones have calls that were cut
			end()
		}
		env.Barrier()
		env.judge()
	}
}

// replace starts a replica of another version beside the leader, creates volumes while the leader ends, and returns the
// replica when it leads. All deletions are stopped in that time, as an operator may do.
func (env *environment) replace(leader *program.Program, by version) *program.Program {
	env.T.Helper()
	env.brake(`"an upgrade"`)
	next := env.launch(by, "next")
	env.Must(next.WaitReady(env.WithTimeout()))
	if strings.Contains(next.LogTail(1000), "Became the leader") {
		env.T.Fatal("two replicas lead")
	}
	env.Must(leader.Terminate())
	env.waitLeads(next)
	return next
}

// brake sets the annotation that stops all deletions, or removes it by null.
func (env *environment) brake(value string) {
	env.T.Helper()
	_, err := env.Client.CoordinationV1().Leases(env.DriverNamespace).Patch(env.Ctx, env.LeaseName(), types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, reclaim.BrakeAnnotation, value), metav1.PatchOptions{})
	env.Must(err)
}

// expectBrakeKept checks that the replica that leads deletes nothing before the brake is released, and releases it.
func (env *environment) expectBrakeKept(leader *program.Program) {
	env.T.Helper()
	env.WaitMetric(leader, "csi_reclaimer_braked", "1")
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPVEvent(vol, "DeletionsPaused", "")
	calls, err := env.MockDriver.Calls("DeleteVolume")
	env.Must(err)
	for _, call := range calls {
		if call.PID == leader.PID() {
			env.T.Errorf("WRONG DELETE: DeleteVolume of %s while the brake is on", call.Volume)
		}
	}
	env.brake("null")
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
}

// judge compares the disk of the driver and its ledger with the API objects, once all is at rest.
func (env *environment) judge() {
	env.T.Helper()
	env.WaitAllSettled()
	of := map[string]string{} // PVs by handle
	claimed := map[types.UID]string{}
	disk := env.VolumesOnDisk()
	for _, pv := range env.PVsOfDriver() {
		handle := pv.Spec.CSI.VolumeHandle
		if of[handle] = pv.Name; !disk[handle] {
			env.T.Errorf("WRONG DELETE: volume %s of PV %s is gone", handle, pv.Name)
		}
		if pv.Spec.ClaimRef == nil {
			continue
		}
		if other := claimed[pv.Spec.ClaimRef.UID]; other != "" {
			env.T.Errorf("PVs %s and %s are for one claim", pv.Name, other)
		}
		claimed[pv.Spec.ClaimRef.UID] = pv.Name
	}
	for handle := range disk {
		if of[handle] == "" {
			env.T.Errorf("LEAK: volume %s is on the disk, and no PV has it", handle)
		}
	}
	env.expectChangesOnce()
}

// expectChangesOnce checks that one call made each volume, and one deleted it.
func (env *environment) expectChangesOnce() {
	env.T.Helper()
	for _, method := range []string{"CreateVolume", "DeleteVolume"} {
		calls, err := env.MockDriver.Calls(method)
		env.Must(err)
		changed := map[string]int{}
		for _, call := range calls {
			if call.Changed {
				changed[call.Volume]++
			}
		}
		for volume, n := range changed {
			if n > 1 {
				env.T.Errorf("%d calls of %s changed volume %s", n, method, volume)
			}
		}
	}
}
