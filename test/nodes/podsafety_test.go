//go:build linux

package nodes

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
)

// TestPodSafety judges by the stamps in the volume, and by the running processes, whether a StatefulSet's pod is
// replaced before its processes have ended. TestForceDeletionMakesTwoWriters shows the outcome without volume-guard.
func TestPodSafety(t *testing.T) {
	t.Parallel()
	s := startSafety(t)
	for _, scenario := range []struct {
		name string
		run  func(*safety)
	}{
		{"the node is cut off and returns", testPartition},
		{"the node reboots", testReboot},
		{"the kubelet crashes while it ends the pod", testKubeletCrash},
		{"volume-guard is killed and the API server is away", testOutage},
		{"a person confirms", testConfirmed},
		{"out-of-service on a node that is off", testOutOfService},
		{"out-of-service on a node that is Ready", testOutOfServiceReady},
		{"the Node object is deleted", testNodeDeleted},
		{"the pod garbage collector fails pods that run", testFailedByCollector},
		{"another machine has the name of the node", testNameTaken},
		{"the unmount hangs", testUnmountHangs},
		{"the kubelet refuses the pod", testRefused},
		{"drain", testDrain},
		{"rolling update of a StatefulSet", testStatefulSetUpdate},
		{"rolling update of a Deployment", testDeploymentUpdate},
		{"Job", testJob},
		{"namespace deletion", testNamespaceDeletion},
		{"failed and missing containers", testFailedContainers},
		{"latency", testLatency},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			begun := time.Now()
			scenario.run(s.scenario(t, "enforce"))
			t.Logf("in %s", time.Since(begun).Round(100*time.Millisecond))
		})
	}
}

// partition cuts a node off until the scenario ends.
func (s *safety) partition(node string) {
	s.T.Helper()
	s.Must(s.pool.Node(node).Partition())
	s.T.Cleanup(func() { s.Must(s.pool.Node(node).Heal()) })
}

// powerOff ends all processes of a node, until the scenario ends or boots it.
func (s *safety) powerOff(node string) {
	s.T.Helper()
	s.Must(s.pool.Node(node).PowerOff())
	s.T.Cleanup(func() { s.boot(node) })
}

// boot starts a node unless it is on.
func (s *safety) boot(node string) {
	if n := s.pool.Node(node); n.Heal() != nil {
		s.Must(n.Boot(s.CleanupContext()))
	}
}

// waitNotReady waits until the node controller has heard nothing of a node for long.
func (s *safety) waitNotReady(node string) {
	s.T.Helper()
	s.until("node "+node+" is not Ready", func() bool {
		now, err := s.Client.CoreV1().Nodes().Get(s.Ctx, node, metav1.GetOptions{})
		s.Must(err)
		for _, c := range now.Status.Conditions {
			if c.Type == v1.NodeReady {
				return c.Status == v1.ConditionUnknown
			}
		}
		return false
	})
}

// testPartition expects a pod on a node that is cut off to be held, a force deletion to be refused, and the pod to end
// when the node returns.
func testPartition(s *safety) {
	d := s.startDatabase("db", node1, node2)
	s.partition(node1)
	if err := d.forceDelete(); !apierrors.IsForbidden(err) {
		s.T.Errorf("force deletion without a confirmation: %v, want a refusal", err)
	}
	d.delete()
	s.waitNotReady(node1)
	d.waitSaid("NodeUnreachable")
	if err := d.forceDelete(); !apierrors.IsForbidden(err) {
		s.T.Errorf("force deletion of a pod that is terminating, without a confirmation: %v, want a refusal", err)
	}
	d.expectHeld()
	s.Must(s.pool.Node(node1).Heal())
	d.waitReplaced("Finished")
}

// testReboot has a node lose power while its pod is terminating, and boot.
func testReboot(s *safety) {
	d := s.startDatabase("db", node1, node2, stubborn(longEnd))
	d.delete()
	d.waitKilling()
	s.powerOff(node1)
	s.waitNotReady(node1)
	d.waitSaid("NodeUnreachable")
	d.expectStays()
	s.Must(s.pool.Node(node1).Boot(s.Ctx))
	d.waitReplaced("Finished")
}

// testConfirmed has a person falsely confirm that the processes have ended. The data shows the cost of this way out.
func testConfirmed(s *safety) {
	d := s.startDatabase("db", node1, node2)
	s.partition(node1)
	if err := d.forceDelete(); !apierrors.IsForbidden(err) {
		s.T.Errorf("force deletion without a confirmation: %v, want a refusal", err)
	}
	other := *d.first
	other.UID = "of-another-pod"
	s.confirm(s.Ctx, &other)
	if err := d.forceDelete(); !apierrors.IsForbidden(err) {
		s.T.Errorf("force deletion with a confirmation of another UID: %v, want a refusal", err)
	}
	s.confirm(s.Ctx, d.first)
	s.Must(d.forceDelete())
	var second *v1.Pod
	s.until("the pod is replaced", func() bool {
		second = d.now()
		return second != nil && second.UID != d.first.UID
	})
	s.waitWritten(d.volume, second.UID, 10)
	s.expectRuns(node1, d.first.UID, true)
	written, err := s.driver.Stamps(d.volume.Handle)
	s.Must(err)
	if overlaps := stamps.Overlaps(written); len(overlaps) != 1 || overlaps[0].First.Pod != d.first.UID {
		s.T.Errorf("overlaps %v, want that of the pod whose end was confirmed, and its replacement", overlaps)
	}
	s.expectReleased(d.name, "Confirmed")
	s.Must(s.pool.Node(node1).Heal())
	s.waitEnded(node1, d.first.UID)
}

func (s *safety) waitEnded(node string, pod types.UID) {
	s.T.Helper()
	s.until("the kubelet ends the pod", func() bool {
		runs, err := s.pool.Node(node).Runs(s.Ctx, pod)
		s.Must(err)
		return !runs
	})
}

// taintOutOfService declares a node to be out of service, or ends that.
func (s *safety) taintOutOfService(node string, is bool) {
	s.T.Helper()
	nodes := s.Client.CoreV1().Nodes()
	s.Eventually("the taints of the node are written", func() bool {
		now, err := nodes.Get(s.Ctx, node, metav1.GetOptions{})
		s.Must(err)
		taints := []v1.Taint{}
		for _, taint := range now.Spec.Taints {
			if taint.Key != v1.TaintNodeOutOfService {
				taints = append(taints, taint)
			}
		}
		if is {
			taints = append(taints, v1.Taint{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown",
				Effect: v1.TaintEffectNoExecute})
		}
		now.Spec.Taints = taints
		_, err = nodes.Update(s.Ctx, now, metav1.UpdateOptions{})
		return err == nil
	})
}

// testOutOfService has a node declared off that is off.
func testOutOfService(s *safety) {
	d := s.startDatabase("db", node1, node2)
	s.powerOff(node1)
	s.waitNotReady(node1)
	s.taintOutOfService(node1, true)
	s.T.Cleanup(func() { s.withCleanupContext().taintOutOfService(node1, false) })
	d.waitReplaced("OutOfService")
}

// withCleanupContext is the same for clean-ups.
func (s *safety) withCleanupContext() *safety {
	env, shared := *s.environment, *s.Environment
	shared.Ctx = s.CleanupContext()
	env.Environment = &shared
	return &safety{environment: &env, guard: s.guard}
}

// testOutOfServiceReady has a node declared off that runs.
func testOutOfServiceReady(s *safety) {
	d := s.startDatabase("db", node1, node2, stubborn(longEnd))
	s.taintOutOfService(node1, true)
	s.T.Cleanup(func() { s.withCleanupContext().taintOutOfService(node1, false) })
	d.waitSaid("OutOfServiceNodeReady")
	d.expectHeld()
	d.waitReplaced("Finished")
}

// testNodeDeleted cuts off two nodes and deletes their Node objects, so that the pod garbage collector ends their pods
// in the API. One of the nodes returns. The other has lost power.
func testNodeDeleted(s *safety) {
	returns := s.startDatabase("returns", node1, node2)
	lost := s.startDatabase("lost", node2, node1)
	s.partition(node1)
	s.powerOff(node2)
	deleted := time.Now()
	for _, node := range []string{node1, node2} {
		s.Must(s.Client.CoreV1().Nodes().Delete(s.Ctx, node, metav1.DeleteOptions{}))
	}
	rejoin := s.onceRejoined(node1)
	s.T.Cleanup(func() {
		rejoin(s.CleanupContext())
		s.boot(node2)
		s.waitDriver(s.CleanupContext(), node2)
	})
	s.until("the pod garbage collector fails the pod", func() bool {
		now := returns.now()
		return now != nil && now.Status.Phase == v1.PodFailed && now.DeletionTimestamp != nil
	})
	s.T.Logf("the pod garbage collector acts after %s: %s", time.Since(deleted).Round(100*time.Millisecond),
		describe(returns.now()))
	returns.expectHeld()
	if now := lost.now(); now == nil || now.UID != lost.first.UID {
		s.T.Errorf("the pod of the node that is off was released %s after its Node was deleted", time.Since(deleted))
	}
	s.Must(s.pool.Node(node1).Heal())
	s.waitEnded(node1, returns.first.UID)
	s.until("the pod of the kubelet that is back is released", func() bool { return s.released(returns.name) != "" })
	s.T.Logf("released %s after the deletion of the Node", time.Since(deleted).Round(100*time.Millisecond))
	rejoin(s.Ctx)
	returns.waitReplaced("Finished")
	lost.waitReplaced("NodeGone")
	if took := time.Since(deleted); took < 80*time.Second {
		s.T.Errorf("the pod of the node that is off was replaced after %s", took)
	}
}

// onceRejoined returns a function that makes a node with a deleted Node object join the cluster again: its kubelet
// registers when it starts.
func (s *safety) onceRejoined(node string) func(context.Context) {
	done := false
	return func(ctx context.Context) {
		if done {
			return
		}
		s.Must(s.pool.Node(node).Restart(ctx))
		s.waitDriver(ctx, node)
		done = true
	}
}
