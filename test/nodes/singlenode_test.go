//go:build linux

package nodes

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestSingleNode judges by the stamps whether two nodes write to an unattached volume with a ReadWriteOnce claim. Each
// scenario runs twice at the same time: without locks, where two pods write, and with locks.
func TestSingleNode(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	c := startSingleNode(t, "busy", "cut-off", "rebooted")
	for _, on := range []struct {
		node      string
		scenarios []singleNodeScenario
	}{
		{"busy", []singleNodeScenario{
			{"Deployment rollout", testRolloutLocked},
			{"drain", testDrainLocked},
			{"volume-guard is killed at each write", testKilledLocked},
			{"the kubelet refuses the pod", testRefusedLocked},
		}},
		{"cut-off", []singleNodeScenario{{"partition, and force deletion", testPartitionLocked}}},
		{"rebooted", []singleNodeScenario{{"reboot", testRebootLocked}}},
	} {
		t.Run(on.node, func(t *testing.T) {
			t.Parallel()
			for _, scenario := range on.scenarios {
				t.Run(scenario.name, func(t *testing.T) {
					begun := time.Now()
					scenario.run(c.scenario(t, on.node))
					t.Logf("in %s", time.Since(begun).Round(100*time.Millisecond))
				})
			}
		})
	}
}

type singleNodeScenario struct {
	name string
	run  func(*singleNode)
}

// testRolloutLocked rolls a Deployment that never wants two pods at a time: Kubernetes creates the new pod when the old
// one is terminating.
func testRolloutLocked(s *singleNode) {
	s.rollout("rollout")
}

// rollout has a Deployment move its pod to the spare node.
func (s *singleNode) rollout(name string) {
	s.locked.T.Helper()
	all := s.start(name, rolling, time.Hour)
	all.each(func(w *workload) { w.rollTo(spare) })
	all.each((*workload).moved)
	all.each((*workload).hurry)
	all.each((*workload).waitReplaced)
}

// rollTo changes the template of the pod, which has to run on a node.
func (w *workload) rollTo(node string) {
	w.T.Helper()
	w.Deployments().Patch(w.name, `{"spec":{"template":{"spec":{"nodeSelector":{"`+v1.LabelHostname+`":"`+node+`"}}}}}`)
}

// testDrainLocked drains the node. The strategy Recreate is about rollouts alone: the ReplicaSet replaces a pod that is
// terminating at once.
func testDrainLocked(s *singleNode) {
	all := s.start("drained", recreate, time.Hour)
	s.drain(all)
	all.each((*workload).moved)
	all.each((*workload).hurry)
	all.each((*workload).waitReplaced)
}

// drain is kubectl drain.
func (s *singleNode) drain(all workloads) {
	s.plain.T.Helper()
	s.plain.cordon(s.plain.Ctx, s.node, true)
	all.each(func(w *workload) {
		w.Must(w.Client.CoreV1().Pods(w.Namespace).EvictV1(w.Ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: w.first.Name}}))
	})
}

// testPartitionLocked cuts the node off, while its containers continue to write. Kubernetes deletes one pod, because
// its node is unreachable for too long, and a person force-deletes another one.
func testPartitionLocked(s *singleNode) {
	evicted := s.start("evicted", recreate, time.Second)
	forced := s.start("forced", recreate, time.Hour)
	s.plain.partition(s.node)
	s.plain.waitNotReady(s.node)
	evicted.each((*workload).moved)
	forced.each(func(w *workload) {
		err := w.delete(0)
		if w.locked {
			if !apierrors.IsForbidden(err) {
				w.T.Errorf("force deletion without a confirmation: %v, want a refusal", err)
			}
			err = w.delete(-1)
		}
		w.Must(err)
	})
	forced.each((*workload).moved)
	s.plain.Must(s.plain.pool.Node(s.node).Heal())
	evicted.each((*workload).hurry)
	forced.each((*workload).hurry)
	evicted.each((*workload).waitReplaced)
	forced.each((*workload).waitReplaced)
}

// testRebootLocked drains a node, which loses power before the pods have ended, and boots.
func testRebootLocked(s *singleNode) {
	all := s.start("rebooted", recreate, time.Hour)
	s.drain(all)
	all.each((*workload).moved)
	s.plain.powerOff(s.node)
	s.plain.waitNotReady(s.node)
	all.each(func(w *workload) {
		if second := w.replacement(); w.locked && !isGated(second) {
			w.T.Errorf("the replacement is scheduled while the node is off: %s", describe(second))
		}
	})
	s.plain.Must(s.plain.pool.Node(s.node).Boot(s.plain.Ctx))
	all.each((*workload).waitReplaced)
}

// testKilledLocked kills volume-guard right after each write about the pods and the claim of a rollout.
func testKilledLocked(s *singleNode) {
	const name = "killed"
	var rules []proxy.Rule
	for _, kind := range []string{"pods", "persistentvolumeclaims"} {
		rules = append(rules, proxy.Rule{Verb: "write", Resource: kind, Object: name + "*", Effect: proxy.Crash})
	}
	s.locked.Must(s.line.SetRules(rules...))
	s.rollout(name)
	killed := s.line.Applied()
	s.locked.Must(s.line.SetRules())
	s.locked.T.Logf("killed at %d writes", killed)
	// For each of two pods the lock and the gate, and the release of the first one's hold and lock.
	if least := 6; killed < least {
		s.locked.T.Errorf("killed at %d writes, want %d", killed, least)
	}
}

// testRefusedLocked has the kubelet refuse the pod of a Deployment, which another scheduler has bound to its node. The
// ReplicaSet makes another pod, and deletes none. The lock stays until the pod is deleted, and a heartbeat of its node
// or a person has shown that it never ran.
func testRefusedLocked(s *singleNode) {
	const name = "refused"
	locked := s.locked
	locked.CreateClaim(locked.CreateStorageClass(), func(spec *objects.ClaimSpec) { spec.Name = name })
	spec := nodes.WriterSpec(name)
	spec.SchedulerName, spec.NodeSelector = "of-the-test", noNode
	locked.createDeployment(name, recreate, spec)
	w := &workload{safety: locked, name: name, locked: true}
	var first *v1.Pod
	locked.until("the pod has the lock", func() bool {
		first = w.replacement()
		return first != nil && !isGated(first)
	})
	w.first = first
	locked.Must(locked.Client.CoreV1().Pods(locked.Namespace).Bind(locked.Ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: w.first.Name}, Target: v1.ObjectReference{Kind: "Node", Name: s.node},
	}, metav1.CreateOptions{}))
	locked.until("it is refused", func() bool { return isRefused(w.pod(w.first.Name)) })
	locked.until("its replacement waits for the lock", func() bool {
		second := w.replacement()
		return second != nil && locked.hasEvent(second.UID, "ClaimInUse")
	})
	locked.Must(w.delete(-1))
	byPerson := false
	locked.until("volume-guard says for what the pod waits", func() bool {
		byPerson = locked.hasEvent(w.first.UID, "EndNotReported")
		return byPerson || locked.hasEvent(w.first.UID, "WaitsForNodeStatus")
	})
	if second := w.replacement(); !isGated(second) && w.pod(w.first.Name) != nil {
		locked.T.Errorf("the replacement got the lock: %s", describe(second))
	}
	if byPerson {
		locked.confirm(locked.Ctx, w.first)
	}
	locked.until("the replacement gets the lock", func() bool { return !isGated(w.replacement()) })
}
