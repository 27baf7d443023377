//go:build unix

package upgrade

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
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
	env.brake("an upgrade")
	next := env.launch(by, "next")
	env.Must(next.WaitReady(env.WithTimeout()))
	if strings.Contains(next.LogTail(1000), "Became the leader") {
		env.T.Fatal("two replicas lead")
	}
	env.Must(leader.Terminate())
	env.waitLeads(next)
	return next
}

// brake sets the annotation that stops all deletions, or removes it for "".
func (env *environment) brake(value string) {
	env.T.Helper()
	env.InNamespace(env.DriverNamespace).Leases().Annotate(env.LeaseName(), reclaim.BrakeAnnotation, value)
}

// expectBrakeKept checks that the replica that leads deletes nothing before the brake is released, and releases it.
func (env *environment) expectBrakeKept(leader *program.Program) {
	env.T.Helper()
	env.WaitMetric(leader, "csi_reclaimer_braked", "1")
	vol := env.MakeProtected(objects.Spec{})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPVEvent(vol, "DeletionsPaused", "")
	calls, err := env.MockDriver.Calls("DeleteVolume")
	env.Must(err)
	for _, call := range calls {
		if call.PID == leader.PID() {
			env.T.Errorf("WRONG DELETE: DeleteVolume of %s while the brake is on", call.Volume)
		}
	}
	env.brake("")
	env.ExpectReclaimed(vol, 1)
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

// The permissions that are missing in the test of the wrong order: claims can neither be read nor found, and no PV can
// be created.
const (
	rightsOfClaims = `resources: ["persistentvolumeclaims"]
  verbs: ["get", "list", "watch", "patch", "update"]`
	noRightsOfClaims = `resources: ["persistentvolumeclaims"]
  verbs: ["patch", "update"]`
	rightsOfPVs   = `verbs: ["get", "list", "watch", "create", "patch", "delete"]`
	noCreateOfPVs = `verbs: ["get", "list", "watch", "patch", "delete"]`
)

// In TestNewBinaryBeforePermissions today's csi-reclaimer takes over without some of its permissions. It names them,
// deletes and leaks nothing, and continues without a restart once they are granted.
func TestNewBinaryBeforePermissions(t *testing.T) {
	t.Parallel()
	from, to := before(t), today(t)
	env, old := start(t, from, to)
	finish := []func(){bound(env), terminatingBound(env), attached(env), creationUnclear(env)}
	released := env.protected()
	env.Must(old.Terminate())

	// As a release before has them that needs less.
	env.applyRights(to, rightsOfPVs, noCreateOfPVs, rightsOfClaims, noRightsOfClaims)
	env.Eventually("the permissions are gone", func() bool {
		return !env.IsAllowed("get", "", "persistentvolumeclaims") && !env.IsAllowed("create", "", "persistentvolumes")
	})
	next := env.launch(to, "next")
	for _, missing := range []string{"get persistentvolumeclaims", "list persistentvolumeclaims",
		"create persistentvolumes"} {
		env.Must(next.WaitLog(env.WithTimeout(), "Preflight: may not "+missing))
	}
	env.Eventually("/readyz names a missing permission", func() bool {
		_, err := next.Get(env.Ctx, "/readyz")
		return err != nil && strings.Contains(err.Error(), "persistentvolumeclaims")
	})
	env.Must(released.DeleteClaim(env.Ctx))
	env.WaitPVEvent(released, "APIReadFailed", "persistentvolumeclaims")
	claim := env.CreateClaim(env.CreateStorageClass())
	late := env.MakeVolume(objects.Spec{})
	env.WaitProtected(late) // it needs none of these permissions
	env.ExpectKept(released)
	if n := len(env.CreateCalls(claim)); n > 0 {
		t.Errorf("%d volumes are made for a claim that cannot be read", n)
	}
	if n := fixture.Sum(env.DeleteCallCounts()); n > 0 {
		t.Errorf("WRONG DELETE: %d calls of DeleteVolume", n)
	}

	env.applyRights(to)
	env.Must(next.WaitReady(env.WithTimeout()))
	env.expectDeletedOnce(released)
	env.expectDeletedByClaim(claim)
	for _, end := range finish {
		end()
	}
	env.judge()
}
