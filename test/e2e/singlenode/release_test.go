//go:build unix

package singlenode

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
)

// testReleased uninstalls volume-guard while a replica runs, a pod has a lock, others wait, and one is held on a node
// that is away: nothing of ours is left on any object, and new pods are created without the gate.
func testReleased(env *environment) {
	env.ask(modeAll)
	g := env.Start(fixture.ReplicaFlags("replica")...)
	m, claim, lost := env.machine(), env.claim(), env.claim()
	first := env.runningPod(claim)
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name)
	away := env.runningPod(lost, on(m.name))
	m.lose()
	env.Must(away.Delete(env.Ctx))
	env.waitClaimEvent(lost, "HolderUnreachable", away.Name)
	third := env.pod("missing")
	env.waits(third, "ClaimMissing")

	output, err := env.Release(fixture.ReplicaFlags("release")...)
	env.Must(err)
	<-g.Done()
	for _, want := range []string{second.Name + ", which waited for pod " + first.Name, away.Name} {
		if !strings.Contains(output, want) {
			env.T.Errorf("the output has no %q:\n%s", want, output)
		}
	}
	env.expectNothingLeft()
	after, err := env.create(env.podOf("after", claim))
	env.Must(err)
	if isGated(after) || isHeld(after) {
		env.T.Errorf("a pod is gated or held after the release: %+v", after)
	}
	env.runs(second)
	m.resume()
	env.deleteAll()
	env.Must(g.Restart())
	env.Must(g.WaitLog(env.WithTimeout(), "Waiting for the lease"))
}

// expectNothingLeft checks that no object of the cluster has a gate, a lock, or a finalizer of volume-guard.
func (env *environment) expectNothingLeft() {
	env.T.Helper()
	pods, err := env.Client.CoreV1().Pods(metav1.NamespaceAll).List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	for i := range pods.Items {
		if pod := &pods.Items[i]; isGated(pod) || isHeld(pod) {
			env.T.Errorf("pod %s is gated or held", pod.Name)
		}
	}
	claims, err := env.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	for i := range claims.Items {
		if isLocked(&claims.Items[i]) {
			env.T.Errorf("claim %s has a lock: %+v", claims.Items[i].Name, claims.Items[i].ObjectMeta)
		}
	}
}
