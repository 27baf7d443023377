//go:build linux

package nodes

import (
	"os"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// testUnmountHangs has the unmount of a pod's volume hang when its containers have ended. The replacement waits for
// longer than the grace for an unmount, and a force deletion is refused.
func testUnmountHangs(s *safety) {
	d := s.startDatabase("db", node1, node2)
	s.Must(s.driver.SetFaults(s.Ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "NodeUnpublishVolume", Volume: d.volume.Handle, Action: faults.Block}}}))
	s.T.Cleanup(func() { s.Must(s.driver.ClearFaults(s.CleanupContext())) })
	d.delete()
	s.waitEnded(node1, d.first.UID)
	s.until("the kubelet reports the end", func() bool { return d.now().Status.Phase != v1.PodRunning })
	if err := d.forceDelete(); !apierrors.IsForbidden(err) {
		s.T.Errorf("force deletion between the end and the unmount: %v, want a refusal", err)
	}
	d.waitSaid("UnmountOverdue")
	d.expectStays()
	if mounts, err := s.pool.Node(node1).Mounts(); err != nil || len(mounts) != 1 || mounts[0].PodUID != d.first.UID {
		s.T.Errorf("mounted are %+v, %v, want the volume of the pod", mounts, err)
	}
	s.Must(s.driver.ClearFaults(s.Ctx))
	d.waitReplaced("Finished")
}

// testNameTaken has another machine, whose container runtime knows no pod, take the name of a node that is cut off and
// runs on. Its kubelet reports each container of the pod as ContainerStatusUnknown, and deletes the pod.
func testNameTaken(s *safety) {
	d := s.startDatabase("db", node1, node2)
	s.partition(node1)
	s.T.Cleanup(func() {
		s.boot(node1)
		s.waitDriver(s.CleanupContext(), node1)
	})
	d.delete()
	s.waitNotReady(node1)
	other, err := nodes.Start(s.Ctx, s.Plane, nodes.Options{Names: []string{node1}, Kubelet: leases, Progress: os.Stderr})
	s.Must(err)
	s.T.Cleanup(func() { s.Must(other.Stop()) })
	d.waitSaid("EndNotReported")
	s.until("the kubelet of the other machine deletes the pod", func() bool {
		now := d.now()
		return now == nil || ptr.Deref(now.DeletionGracePeriodSeconds, -1) == 0
	})
	s.T.Logf("by the other machine: %s", describe(d.now()))
	d.expectHeld()
	s.Must(s.pool.Node(node1).PowerOff())
	s.confirm(s.Ctx, d.first)
	d.waitReplaced("Confirmed")
}

// testRefused deletes pods that their kubelet has refused. Such a pod is released after a heartbeat of its node, if it
// was created after volume-guard had seen the node as it is. A pod from before that waits for a person.
func testRefused(s *safety) {
	for _, name := range []string{"refused-0", "refused-1", "refused-2", "refused-3", "refused-4"} {
		d := s.refusedPod(name)
		d.delete()
		said := ""
		s.until("volume-guard says for what the pod waits", func() bool {
			for _, reason := range []string{"WaitsForNodeStatus", "EndNotReported"} {
				if said == "" && s.hasEvent(d.first.UID, reason) {
					said = reason
				}
			}
			return said != ""
		})
		s.T.Logf("refused and deleted, and waits for %s", said)
		if said == "EndNotReported" {
			s.passPod()
			d.expectStays()
			s.confirm(s.Ctx, d.first)
		}
		s.until("it is gone", func() bool { return d.now() == nil })
		if said == "WaitsForNodeStatus" {
			s.expectReleased(name, "Refused")
			return
		}
		s.expectReleased(name, "Confirmed")
	}
	s.T.Error("no refused pod was released by a heartbeat")
}

// refusedPod returns a pod that its kubelet has refused.
func (s *safety) refusedPod(name string) *database {
	claim := s.mountedClaim()
	pod, err := s.MakePod(s.Ctx, objects.PodSpec{Name: name, Change: func(pod *v1.Pod) {
		pod.Spec = nodes.WriterSpec(claim.Name)
		pod.Spec.NodeName, pod.Spec.NodeSelector = node1, noNode
	}})
	s.Must(err)
	s.Must(pod.Wait(s.WithTimeout(), "refused and held", func(now *v1.Pod) bool {
		return now != nil && isRefused(now) && isHeld(now)
	}))
	d := &database{safety: s, name: pod.Name}
	d.first = d.now()
	return d
}

// passPod returns once volume-guard has released a pod that was deleted after all others.
func (s *safety) passPod() {
	s.T.Helper()
	canary := s.writer("canary", node1, s.mountedClaim().Name)
	_, err := canary.WaitRunning(s.WithTimeout())
	s.Must(err)
	s.Must(canary.Delete(s.Ctx))
	s.Must(canary.WaitGone(s.WithTimeout()))
}

// noNode is a selector that the labels of no node satisfy. A pod that is bound to a node despite it is refused there.
var noNode = map[string]string{"no": "node"}

func isRefused(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "NodeAffinity"
}
