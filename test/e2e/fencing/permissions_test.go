//go:build unix

package fencing

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
)

// TestPermissionsAreNecessaryAndSufficient exercises the controller with the shipped permissions, for Jobs and for
// NetworkFences.
func TestPermissionsAreNecessaryAndSufficient(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutRequests)
	t.Parallel()
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
