//go:build unix

package fencing

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
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

// chains have agents that hang, fail, are disturbed, or say more than once how they have ended.
func chains() []scenario {
	return []scenario{
		{"two agents fail, the third proves, and all undo in reverse order", testChain},
		{"a Job that hangs is stopped at its time limit", testJobHangs},
		{"an agent that has proven and then says that it has failed", testProvenThenFailed},
		{"an agent that says too late that it has succeeded", testTooLate},
		{"a deleted Job is created again", testJobDeleted},
		{"a PodTemplate that is missing", testTemplateMissing},
		{"a remediation of another owner", testForeignRemediation},
		{"a person confirms after all agents have failed", testConfirmAfterFailure},
	}
}

// testChain expects all three agents to undo their work, also agents without a proof.
func testChain(env *environment) {
	m, w := env.lost("chain")
	f := env.fence(m, env.remediationAgent(), env.jobAgent("reset", undoing), env.jobAgent("power-off", undoing))
	f.waitRemediation()
	f.report("False")
	f.endJob(f.waitJob(doFence, 2), v1.PodFailed)
	job := f.waitJob(doFence, 3)
	f.expectNotReleased(w)
	f.endJob(job, v1.PodSucceeded)
	f.waitFenced("power-off")
	w.waitReplaced(env.spare.name)
	f.expectAttempts("outlet: Failed", "reset: Failed", "power-off: Proven")
	m.boot()
	m.waitTainted(false) // it runs again, whether the agents have undone their work or not
	f.completeJob(doUnfence, 3)
	f.completeJob(doUnfence, 2)
	o := f.waitReturned("NodeRebooted")
	times := []*metav1.Time{o.Status.Attempts[2].UndoneAt, o.Status.Attempts[1].UndoneAt, o.Status.Attempts[0].UndoneAt}
	if slices.Contains(times, nil) || times[1].Before(times[0]) || times[2].Before(times[1]) {
		env.T.Errorf("the agents have not undone their work, the last one first: %s", describe(o))
	}
}

func testJobHangs(env *environment) {
	m, w := env.lost("hangs")
	f := env.fence(m, env.jobAgent("reset", short), env.remediationAgent())
	env.Eventually("the Job is created", func() bool { return len(f.jobs(doFence, 1)) > 0 })
	f.waitRemediation()
	f.expectNotReleased(w)
	// The Job has the same time limit: whichever of the two ends it first, and whether its pod runs by then or not.
	if result := f.get().Status.Attempts[0].Result; result != v1alpha1.ResultTimedOut && result != v1alpha1.ResultFailed {
		env.T.Errorf("the Job that hangs ended as %q", result)
	}
	f.report("True")
	f.waitFenced(outlet)
	w.waitReplaced(env.spare.name)
}

func testProvenThenFailed(env *environment) {
	m, w := env.lost("twice")
	f := env.fence(m, env.remediationAgent(), env.jobAgent("reset"))
	f.waitRemediation()
	f.report("True")
	f.waitFenced(outlet)
	f.report("False")
	w.waitReplaced(env.spare.name)
	f.waitPhase(v1alpha1.PhaseReleased)
	f.expectAttempts("outlet: Proven")
}

// testTooLate has a remediator that succeeds while it is being stopped: a reader of the result of its attempt may have
// begun other work.
func testTooLate(env *environment) {
	const finalizer = "fencing.test/working"
	m, w := env.lost("late")
	f := env.fence(m, env.remediationAgent(short), env.jobAgent("reset"))
	f.waitRemediation()
	setFinalizers := func(finalizers string) {
		_, err := f.remediations().Patch(f.Ctx, f.name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
		env.Must(err)
	}
	setFinalizers(`["` + finalizer + `"]`)
	env.Eventually("the remediation is stopped", func() bool { return f.remediation().GetDeletionTimestamp() != nil })
	f.report("True")
	env.Eventually("volume-guard waits for its end", func() bool { return env.guardSays(m.name, "AgentStopping") })
	f.expectNotReleased(w)
	setFinalizers("null")
	job := f.waitJob(doFence, 2)
	f.expectNotReleased(w)
	f.endJob(job, v1.PodSucceeded)
	f.waitFenced("reset")
	f.expectAttempts("outlet: TimedOut", "reset: Proven")
	w.waitReplaced(env.spare.name)
}

func testJobDeleted(env *environment) {
	m, w := env.lost("deleted")
	f := env.fence(m, env.jobAgent("reset"))
	first := f.waitJob(doFence, 1)
	env.Jobs().Delete(first.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	env.Eventually("the Job is created again", func() bool {
		all := f.jobs(doFence, 1)
		return len(all) == 1 && all[0].UID != first.UID
	})
	f.expectNotReleased(w)
	f.completeJob(doFence, 1)
	f.waitFenced("reset")
	w.waitReplaced(env.spare.name)
	f.expectAttempts("reset: Proven")
}

func testTemplateMissing(env *environment) {
	m, w := env.lost("template")
	f := env.fence(m, env.agentOfJobs("reset"))
	f.waitEvent("AgentUnusable", "PodTemplate")
	f.expectNotReleased(w)
	env.createPodTemplate("reset")
	f.completeJob(doFence, 1)
	f.waitFenced("reset")
	w.waitReplaced(env.spare.name)
}

// testForeignRemediation has a remediation of the node that a health check has created: its success belongs to another
// fence.
func testForeignRemediation(env *environment) {
	m, w := env.lost("foreign")
	other := &fence{environment: env, of: m, name: m.name}
	env.createRemediation(m.name)
	other.report("True")
	f := env.fence(m, env.remediationAgent(short), env.jobAgent("reset"))
	job := f.waitJob(doFence, 2)
	f.expectNotReleased(w)
	f.endJob(job, v1.PodSucceeded)
	f.waitFenced("reset")
	f.expectAttempts("outlet: TimedOut", "reset: Proven")
	if f.remediation() == nil {
		env.T.Error("the remediation of another owner was deleted")
	}
	w.waitReplaced(env.spare.name)
}

func testConfirmAfterFailure(env *environment) {
	m, w := env.lost("confirm")
	f := env.fence(m, env.remediationAgent())
	f.waitRemediation()
	f.report("False")
	f.waitPhase(v1alpha1.PhaseFailed)
	f.waitEvent("AgentFailed", "The outlet says so.")
	f.expectNotReleased(w)
	f.confirm("I have pulled the plug.")
	f.waitFenced("confirmation")
	w.waitReplaced(env.spare.name)
	f.expectAttempts("outlet: Failed", "confirmation: Proven")
	m.boot()
	f.waitReturned("NodeRebooted")
}

// TestPermissionsAreNecessaryAndSufficient exercises the controller with the shipped permissions, for Jobs and for
// NetworkFences.
func TestPermissionsAreNecessaryAndSufficient(t *testing.T) {
	fixture.Begin(t, fixture.AboutRequests)
	env := newEnvironmentOf(t, controller)
	g := env.Start(append(fixture.NextReplicaFlags("leader"), "--keep-returned-fences=1s")...)
	const policy = "policy"
	m := env.selected(policy, nil)
	w := env.workload(m, impatient)
	env.policy(policy, func(s *v1alpha1.FencePolicySpec) {
		s.DryRun, s.BudgetPatience = true, metav1.Duration{Duration: time.Second}
		s.NamespaceSelector.MatchLabels = map[string]string{v1.LabelMetadataName: env.Namespace}
	})
	m.silence()

	other := env.machine("other", nil)
	other.lose()
	env.createNetworkFenceClass("storage")
	env.createCSIAddonsNode(other, "storage")
	network := env.networkFenceAgent("storage")
	network.NetworkFence.Addresses = v1alpha1.AddressesReported
	f := env.fence(other, env.jobAgent("hangs", short), network)
	f.reportNetworkFence(f.waitNetworkFence("Fenced"), "Succeeded", "fencing operation successful")
	f.waitFenced("storage")
	other.boot()
	f.reportNetworkFence(f.waitNetworkFence("Unfenced"), "Succeeded", "unfencing operation successful")
	f.waitGone()

	env.waitJudgement(policy, m, "WouldFence")
	env.patchPolicy(policy, `{"haltAbove":1}`)
	env.waitJudgement(policy, m, "ManyUnreachable")
	env.patchPolicy(policy, `{"haltAbove":100}`)
	env.waitJudgement(policy, m, "WouldFence") // the same again is a patch of the Event
	env.patchPolicy(policy, `{"dryRun":false}`)
	f = env.waitFenceOf(policy, m)
	f.completeJob(doFence, 1)
	w.waitReplaced(env.spare.name)
	m.boot()
	f.waitGone()
	env.Must(g.Terminate())
	env.ExpectAllRulesUsed(env.Rules)
}
