//go:build unix

package statefulset

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// TestFailures makes volume-guard, its replica and Kubernetes' components fail. Together, the scenarios use all
// permissions of volume-guard.
func TestFailures(t *testing.T) {
	t.Parallel()
	env := newOwnEnvironment(t)
	t.Run("volume-guard is killed at each write", func(t *testing.T) { testKilled(env.scenario(t)) })
	t.Run("the StatefulSet controller does not notice a scale-up", func(t *testing.T) { testForgotten(env.scenario(t)) })
	t.Run("the StatefulSet controller creates a pod with a claim that is going",
		func(t *testing.T) { testOldClaim(env.scenario(t)) })
	t.Run("the leader is replaced", func(t *testing.T) { testLeaderReplaced(env.scenario(t)) })
	if !env.field { // where Kubernetes has the policy, no pod is deleted
		// The former leader has created the Lease, with an account of its own.
		env.ExpectAllRulesUsed(env.rules, "create leases.coordination.k8s.io")
	}
	// An API server that starts refuses requests until it has read the permissions.
	t.Run("the API server and the controller manager are away", func(t *testing.T) { testAPIServerAway(env.scenario(t)) })
}

// testKilled plays the life of a set with volume-guard killed right after each of its writes, which the API server has
// stored.
func testKilled(env *environment) {
	account, err := clientcmd.BuildConfigFromFlags("", env.Kubeconfig)
	env.Must(err)
	var g *program.Program
	dead := make(chan struct{})
	line, err := proxy.Start(account, proxy.Options{Crash: func() {
		g.Kill()
		dead <- struct{}{}
	}})
	env.Must(err)
	defer func() { env.Must(line.Close()) }()
	direct := env.Kubeconfig
	env.Kubeconfig = filepath.Join(env.T.TempDir(), "proxied")
	env.Must(controlplane.WriteKubeconfig(env.Kubeconfig, line.Config()))
	g = env.startVolumeGuard("--leader-election=false")
	env.Kubeconfig = direct
	restarted := make(chan error, 1)
	go func() {
		var err error
		for range dead {
			g.Kill() // a process that was started after another of several concurrent writes
			err = errors.Join(err, g.Restart())
		}
		restarted <- err
	}()
	var rules []proxy.Rule
	for _, resource := range []string{"persistentvolumeclaims", "pods", "statefulsets"} {
		rules = append(rules, proxy.Rule{Verb: "write", Resource: resource, Effect: proxy.Crash})
	}
	env.Must(line.SetRules(rules...))
	env.playLife()
	killed := line.Applied()
	env.Must(line.SetRules())
	env.barrier()
	for _, d := range env.kept.all {
		d.isKept()
	}
	close(dead)
	env.Must(<-restarted)
	env.Must(g.Terminate())
	least := 5 // three marks, a deletion, and a mark that is removed
	if !env.field {
		// And an owner that is added. Of the claim that is scaled away with its pod: its owner, its deletion or both, as the
		// pod ends before, or garbage collection deletes the claim.
		least = 7
	}
	env.T.Logf("killed at %d writes", killed)
	if killed < least {
		env.T.Errorf("killed at %d writes, want %d", killed, least)
	}
}

// playLife scales a set down with its pod and after its pod, turns its policy and deletes it.
func (env *environment) playLife() {
	env.T.Helper()
	s := env.runningSet(3, onScaledown)
	first, second, third := s.write(0), s.write(1), s.write(2)
	s.scale(2)
	s.waitPods(0, 2)
	s.expectDeleted(third)
	s.abandon()
	s.expectDeleted(second)
	s.setFirstReady(true)
	s.setPolicy(onBoth)
	s.waitPrepared(onBoth)
	s.setPolicy(keepAll)
	s.waitPrepared(keepAll)
	s.delete(metav1.DeletePropagationBackground)
	s.waitGone()
	s.expectKept(first)
}

// testAPIServerAway ends the API server while a claim is condemned, and later the controller manager.
func testAPIServerAway(env *environment) {
	g := env.startVolumeGuard("--leader-election=false")
	s := env.runningSet(3, onScaledown)
	first, second, third := s.write(0), s.write(1), s.write(2)
	s.losePod(2)
	s.scale(2)
	env.RestartAPIServer()
	s.expectDeleted(third)
	s.setFirstReady(true)
	s.waitPods(0, 2)
	env.Plane.ControllerManager.Kill()
	s.scale(1)
	env.Must(env.Plane.ControllerManager.Restart(env.Ctx))
	s.waitPods(0, 1)
	s.expectDeleted(second)
	first.isKept()
	env.Must(g.Terminate())
}

// testForgotten has the controller manager stand still while a set is scaled up: it is written to, and that is removed
// when the set is complete.
func testForgotten(env *environment) {
	g := env.startVolumeGuard("--leader-election=false")
	s := env.runningSet(1, onScaledown)
	env.Must(env.Plane.ControllerManager.Pause())
	s.scale(2)
	began := time.Now()
	s.Eventually("the set is woken", func() bool { return s.object().Annotations[wokenAnnotation] != "" })
	env.T.Logf("woken after %s", time.Since(began).Round(100*time.Millisecond))
	env.Must(env.Plane.ControllerManager.Resume())
	s.waitPods(0, 2)
	s.Eventually("the annotation is removed", func() bool { return s.object().Annotations[wokenAnnotation] == "" })
	env.Must(g.Terminate())
}

// testOldClaim creates a pod as the StatefulSet controller does that has not noticed that the claim of its predecessor
// is being deleted: a finalizer keeps the claim. Its predecessor does not end before it owns the claim. Where an owner
// reference of volume-guard has deleted it, the pod is deleted, too, so that the next one gets a new claim.
func testOldClaim(env *environment) {
	g := env.startVolumeGuard("--leader-election=false")
	s := env.runningSet(2, onScaledown)
	d := s.write(1)
	now := s.pods()[s.podName(1)]
	s.patchSecondClaim(`{"metadata":{"finalizers":["kubernetes.io/pvc-protection","` + endsLate + `"]}}`)
	s.hold(1)
	s.scale(1)
	s.waitOwnedByPod(1)
	s.unhold(1)
	s.waitPods(0, 1)
	s.waitClaim(1, "terminating", func(claim *v1.PersistentVolumeClaim) bool { return claim.DeletionTimestamp != nil })
	env.Must(env.Plane.ControllerManager.Pause())
	s.scale(2)
	pod, err := env.Client.CoreV1().Pods(env.Namespace).Create(env.Ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: now.Name, Labels: now.Labels, OwnerReferences: now.OwnerReferences},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}, Volumes: now.Spec.Volumes,
			NodeSelector: now.Spec.NodeSelector, Hostname: now.Spec.Hostname, Subdomain: now.Spec.Subdomain},
	}, metav1.CreateOptions{})
	env.Must(err)
	if env.field {
		s.waitEvent("PersistentVolumeClaim", d.claim.Name, "PodUsesTerminatingClaim", "")
		s.deletePod(1) // as the Event says
	}
	s.Eventually("the pod is deleted", func() bool {
		now := s.pods()[pod.Name]
		return now == nil || now.UID != pod.UID || now.DeletionTimestamp != nil
	})
	if !env.field {
		s.waitEvent("PersistentVolumeClaim", d.claim.Name, "PodUsesOldClaim", "")
	}
	env.Must(env.Plane.ControllerManager.Resume())
	s.patchSecondClaim(`{"metadata":{"finalizers":null}}`)
	s.expectDeleted(d)
	s.waitPods(0, 2)
	s.expectEmpty(1, d)
	s.reportAgain()
	env.Must(g.Terminate())
}

// reportAgain has volume-guard report something for the second time, which is a patch of the Event. Each change follows
// once the one before was reported: volume-guard may take two changes at a time.
func (s *set) reportAgain() {
	s.T.Helper()
	const grace, held = "ScaleDownGrace", "ClaimHeld"
	s.annotate(graceAnnotation, "1h")
	s.abandon()
	claim := s.claim(1).UID
	s.waitReports(claim, grace, 1)
	for again := int32(1); again <= 2; again++ {
		s.patchSecondClaim(annotationPatch(holdAnnotation, "held"))
		s.waitReports(claim, held, again)
		s.patchSecondClaim(annotationPatch(holdAnnotation, ""))
		s.waitReports(claim, grace, again+1)
	}
}

// waitReports waits until a reason was reported so many times on a claim.
func (s *set) waitReports(claim types.UID, reason string, times int32) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("claim %s has %d times an Event %s", claim, times, reason), func() bool {
		list, err := s.Client.CoreV1().Events(s.Namespace).List(s.Ctx, metav1.ListOptions{FieldSelector: fields.Set{
			"involvedObject.uid": string(claim), "reason": reason}.String()})
		s.Must(err)
		reports := int32(0)
		for i := range list.Items {
			reports += list.Items[i].Count
		}
		return reports >= times
	})
}

// testLeaderReplaced kills the leader before a claim is condemned. The next leader deletes this claim, and claims that
// are condemned later.
func testLeaderReplaced(env *environment) {
	former := env.startVolumeGuard(fixture.NextReplicaFlags("former")...)
	env.Must(former.WaitLog(env.WithTimeout(), "Became the leader"))
	next := env.startVolumeGuard(fixture.NextReplicaFlags("next")...)
	s := env.runningSet(3, onScaledown)
	first, second, third := s.write(0), s.write(1), s.write(2)
	s.losePod(2)
	former.Kill()
	s.scale(2)
	env.HandOverLease(fixture.VolumeGuardName, "former")
	env.Must(next.WaitLog(env.WithTimeout(), "Became the leader"))
	s.setFirstReady(true)
	s.expectDeleted(third)
	s.abandon()
	s.expectDeleted(second)
	first.isKept()
	env.Must(next.Terminate())
}
