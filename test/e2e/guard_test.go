//go:build unix

package e2e

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

const guardName = "volume-guard"

// guardProgram is volume-guard with the race detector, compiled when it is first needed.
var guardProgram = sync.OnceValues(func() (string, error) {
	return daemon.Build(context.Background(), guardName, os.Stderr, "-race")
})

// newGuardStage starts a control plane of the test's own, for volume-guard works on all of it, and
// grants a service account what deploy/ grants volume-guard. There is no driver.
func newGuardStage(t *testing.T, v controlplane.Version, options controlplane.Options) *stage {
	t.Helper()
	s := newGuardPlane(t, v, options)
	s.must(grant.Guard(s.ctx, s.client, s.Namespace, guardName))
	return s
}

// newGuardPlane does so, and the account may do nothing.
func newGuardPlane(t *testing.T, v controlplane.Version, options controlplane.Options) *stage {
	t.Helper()
	options.AuditLog, options.Progress = true, os.Stderr
	options.ControllerManagerQPS = 5000
	options.ControllerManagerArgs = append(slices.Clone(options.ControllerManagerArgs), "--pvclaimbinder-sync-period=2s")
	plane, err := controlplane.Start(t.Context(), v, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Errorf("stop control plane: %v", err)
		}
	})
	s := newStageOn(t, plane, "none.csi-reclaimer.io")
	s.account(guardName)
	return s
}

// unprotected has a controller manager run without its own controllers for the protection of claims and PVs.
func unprotected() controlplane.Options {
	return controlplane.Options{
		Controllers: []string{"*", "-persistentvolumeclaim-protection-controller", "-persistentvolume-protection-controller"},
	}
}

// protecting are flags with which volume-guard protects claims and PVs, and needs little time to find out
// that nobody else does.
func protecting() []string {
	return []string{"--controllers=*,pvc-protection,pv-protection", "--protection-patience=2s"}
}

// guard starts volume-guard and waits until it is ready.
func (s *stage) guard(args ...string) *daemon.Daemon {
	s.t.Helper()
	g := s.launchGuard(args...)
	s.must(g.WaitReady(s.soon()))
	return g
}

// launchGuard starts volume-guard and waits for nothing.
func (s *stage) launchGuard(args ...string) *daemon.Daemon {
	s.t.Helper()
	binary, err := guardProgram()
	s.must(err)
	g, err := daemon.Start(s.ctx, daemon.Options{
		Name: guardName, Binary: binary,
		Args: append([]string{"--kubeconfig=" + s.kube, "--leader-election-namespace=" + s.Namespace}, args...),
	})
	s.must(err)
	s.stopLater(g)
	return g
}

// TestAClaimInUseIsKept where kube-controller-manager's own controller for that is off.
func TestAClaimInUseIsKept(t *testing.T) {
	t.Parallel()
	s := newGuardStage(t, controlplane.V1_36, unprotected())
	fakenode.ForTest(t, s.plane, "node", fakenode.Config{})
	s.guard(protecting()...)
	claim := s.claim("none")
	pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: "user", Claims: []string{claim.Name}, Node: "node"})
	s.must(err)
	_, err = pod.WaitRunning(s.soon())
	s.must(err)
	s.deleteClaim(claim)
	s.waitTold(claim, "InUse", "Pod user")
	s.must(pod.Delete(s.ctx))
	s.waitClaim(claim, "gone", noClaim)
}
