//go:build unix

package fencing

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
)

// TestKilled kills volume-guard right after each of its writes.
func TestKilled(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	history := env.record()
	account, err := clientcmd.BuildConfigFromFlags("", env.Kubeconfig)
	env.Must(err)
	var killed atomic.Int64
	dead := make(chan struct{})
	line, err := proxy.Start(account, proxy.Options{Crash: func() {
		env.guard.Kill()
		killed.Add(1)
		dead <- struct{}{}
	}})
	env.Must(err)
	defer func() { env.Must(line.Close()) }()
	env.Kubeconfig = filepath.Join(t.TempDir(), "proxied")
	env.Must(controlplane.WriteKubeconfig(env.Kubeconfig, line.Config()))
	env.guard = env.startVolumeGuard("--leader-election=false", "--keep-returned-fences=1s")
	restarted := make(chan error, 1)
	go func() {
		var err error
		for range dead {
			env.guard.Kill() // a process that was started after another of several concurrent writes
			err = errors.Join(err, env.guard.Restart())
		}
		restarted <- err
	}()
	var rules []proxy.Rule
	for _, resource := range []string{"nodefences", "nodefences/status", "nodes", "jobs", "powercyclings", "pods"} {
		rules = append(rules, proxy.Rule{Verb: "write", Resource: resource, Effect: proxy.Crash})
	}
	env.Must(line.SetRules(rules...))
	env.playLife()
	env.Must(line.Close()) // waits for the last crash
	close(dead)
	env.Must(<-restarted)
	env.check(history)
	// The finalizer, two attempts, their starts, a failure, a proof, a taint, its condition, a pod (hold, deletion,
	// release), the end of the proof, the undoing of two agents, the taint, the return, the deletion, the finalizer.
	const least = 18
	t.Logf("killed at %d writes", killed.Load())
	if killed.Load() < least {
		t.Errorf("killed at %d writes, want %d", killed.Load(), least)
	}
}

// playLife has one agent fail and another one fence a node, up to the end of its NodeFence.
func (env *environment) playLife() {
	env.T.Helper()
	m := env.machine("life", nil)
	w := env.workload(m)
	m.lose()
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
	t.Run("the leader is killed", func(t *testing.T) { testLeaderKilled(env.of(t)) })
	t.Run("the API server is away", func(t *testing.T) { testAPIServerAway(env.scenario(t)) })
}

// testLeaderKilled kills the leader while an agent works, which succeeds before the next one leads.
func testLeaderKilled(env *environment) {
	former := env.startVolumeGuard(fixture.NextReplicaFlags("former")...)
	env.Must(former.WaitLog(env.WithTimeout(), "Became the leader"))
	next := env.startVolumeGuard(fixture.NextReplicaFlags("next")...)
	m := env.machine("former", nil)
	w := env.workload(m)
	m.lose()
	f := env.fence(m, env.remediationAgent())
	f.waitRemediation()
	former.Kill()
	f.report("True")
	env.HandOverLease(fixture.VolumeGuardName, "former")
	env.Must(next.WaitLog(env.WithTimeout(), "Became the leader"))
	f.waitFenced(outlet)
	w.waitReplaced(env.spare.name)
	m.boot()
	f.waitReturned("NodeRebooted")
	env.Must(next.Terminate())
}

// testAPIServerAway ends the API server while an agent works, and when its node is released.
func testAPIServerAway(env *environment) {
	g := env.startVolumeGuard("--leader-election=false")
	m := env.machine("away", nil)
	w := env.workload(m)
	m.lose()
	f := env.fence(m, env.remediationAgent())
	f.waitRemediation()
	env.RestartAPIServer()
	f.expectNotReleased(w)
	f.report("True")
	f.waitFenced(outlet)
	w.waitReplaced(env.spare.name)
	m.boot()
	f.waitReturned("NodeRebooted")
	env.Must(g.Terminate())
}
