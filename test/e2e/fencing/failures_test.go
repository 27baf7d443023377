//go:build unix

package fencing

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// TestKilled kills volume-guard right after each of its writes.
func TestKilled(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	history := env.record()
	resources := []string{"nodefences", "nodefences/status", "nodes", "jobs", "powercyclings", "pods"}
	// The finalizer, two attempts, their starts, a failure, a proof, a taint, its condition, a pod (hold, deletion,
	// release), the end of the proof, the undoing of two agents, the taint, the return, the deletion, the finalizer.
	env.KillAtEachWrite(18, resources, env.playLife, func() { env.check(history) }, "--keep-returned-fences=1s")
}

// playLife has one agent fail and another one fence a node, up to the end of its NodeFence.
func (env *environment) playLife() {
	env.T.Helper()
	m, w := env.lost("life")
	f := env.fence(m, env.remediationAgent(), env.jobAgent("power-off", undoing))
	f.waitRemediation()
	f.report("False")
	job := f.waitJob(doFence, 2)
	f.expectNotReleased(w)
	f.endJob(job, v1.PodSucceeded)
	w.waitReplaced(env.spare.name)
	f.waitPhase(v1alpha1.PhaseReleased)
	f.expectAttempts("outlet: Failed", "power-off: Proven")
	m.boot()
	f.completeJob(doUnfence, 2)
	f.waitGone()
	if f.remediation() != nil || isTainted(m.node()) {
		env.T.Error("the fence has ended, and something of it is left")
	}
}

// TestFailures has the leader and the API server fail.
func TestFailures(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	t.Run("the leader is killed", func(t *testing.T) { env := env.of(t); env.ReplaceLeader(env.playOutage) })
	t.Run("the API server is away", func(t *testing.T) {
		env := env.scenario(t)
		env.RestartAPIServers(env.playOutage)
	})
}

// playOutage has an outage while an agent works, which succeeds in this time.
func (env *environment) playOutage(begin, end func()) {
	env.T.Helper()
	m, w := env.lost("outage")
	f := env.fence(m, env.remediationAgent())
	f.waitRemediation()
	begin()
	f.expectNotReleased(w)
	f.report("True")
	end()
	f.waitFenced(outlet)
	w.waitReplaced(env.spare.name)
	m.boot()
	f.waitReturned("NodeRebooted")
}
