//go:build linux

package nodes

import (
	"context"
	"os"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
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
	pod := s.CreatePod(objects.PodSpec{Name: name, Change: func(pod *v1.Pod) {
		pod.Spec = nodes.WriterSpec(claim.Name)
		pod.Spec.NodeName, pod.Spec.NodeSelector = node1, noNode
	}})
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
	s.WaitRunning(canary)
	s.Must(canary.Delete(s.Ctx))
	s.Must(canary.WaitGone(s.WithTimeout()))
}

// noNode is a selector that the labels of no node satisfy. A pod that is bound to a node despite it is refused there.
var noNode = map[string]string{"no": "node"}

func isRefused(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "NodeAffinity"
}

// waitKilling waits until the kubelet has begun to end the pod.
func (d *database) waitKilling() {
	d.T.Helper()
	d.waitSaid("Killing")
}

// waitDriver waits until a kubelet has registered the driver.
func (s *safety) waitDriver(ctx context.Context, node string) {
	s.T.Helper()
	for {
		now, err := s.Client.StorageV1().CSINodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && len(now.Spec.Drivers) > 0 {
			return
		}
		select {
		case <-ctx.Done():
			s.T.Fatalf("node %s has no driver: %v", node, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// testKubeletCrash crashes a kubelet while it ends a pod, which continues to write, and starts the kubelet again.
func testKubeletCrash(s *safety) {
	d := s.startDatabase("db", node1, node2, stubborn(longEnd))
	d.delete()
	d.waitKilling()
	s.Must(s.pool.Node(node1).Crash())
	s.T.Cleanup(func() {
		if s.T.Failed() {
			s.Must(s.pool.Node(node1).Restart(s.CleanupContext()))
		}
	})
	s.until("the grace period has passed", func() bool { return time.Now().After(d.now().DeletionTimestamp.Time) })
	d.expectHeld()
	s.Must(s.pool.Node(node1).Restart(s.Ctx))
	d.waitReplaced("Finished")
}

// outage is how long the API server is away at least.
const outage = 20 * time.Second

// testOutage kills volume-guard while a kubelet ends a pod, and starts it again while the API server is away.
func testOutage(s *safety) {
	d := s.startDatabase("db", node1, node2, stubborn(longEnd))
	d.delete()
	d.waitKilling()
	s.guard.Kill()
	restarted := false
	s.T.Cleanup(func() {
		if !restarted {
			s.Must(s.guard.Restart())
		}
	})
	s.waitEnded(node1, d.first.UID)
	s.until("the kubelet deletes the pod", func() bool {
		now := d.now()
		return now == nil || ptr.Deref(now.DeletionGracePeriodSeconds, -1) == 0
	})
	if now := d.now(); now == nil || now.UID != d.first.UID || !isHeld(now) {
		s.T.Errorf("the pod was released while volume-guard is away: %+v", now)
	}
	api := s.Plane.APIServer
	api.Kill()
	away := time.NewTimer(outage)
	s.Must(s.guard.Restart())
	restarted = true
	s.Must(s.guard.WaitLog(s.WithTimeout(), "connection refused"))
	<-away.C
	s.Must(api.Restart(s.Ctx))
	s.Must(s.guard.WaitReady(s.WithTimeout()))
	back := time.Now()
	s.until("the pod is released", func() bool { return s.released(d.name) != "" })
	s.T.Logf("released %s after volume-guard was ready", time.Since(back).Round(100*time.Millisecond))
	d.waitReplaced("Finished")
	s.waitHeard(node1, node2)
}

// waitHeard waits until the kubelets of the nodes renew their Leases.
func (s *safety) waitHeard(names ...string) {
	s.T.Helper()
	since := time.Now()
	for _, name := range names {
		s.until("node "+name+" is heard of", func() bool {
			lease, err := s.Client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(s.Ctx, name, metav1.GetOptions{})
			return err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(since)
		})
	}
}

// testFailedByCollector deletes the Node of a node that is cut off, so that the pod garbage collector sets the phase
// Failed of pods that run. A person then deletes the claims of a pod, and a Job goes by the phase.
func testFailedByCollector(s *safety) {
	pod, held := s.startEphemeral("owner")
	job := s.startJob("job", batchv1.Failed)
	s.partition(node1)
	s.cordon(s.Ctx, node2, false)
	s.Nodes().Delete(node1)
	rejoin := s.onceRejoined(node1)
	s.T.Cleanup(func() { rejoin(s.CleanupContext()) })
	s.Must(pod.Wait(s.Ctx, "failed and held", func(now *v1.Pod) bool {
		return now != nil && now.Status.Phase == v1.PodFailed && now.DeletionTimestamp != nil && isHeld(now)
	}))
	for _, each := range held {
		s.MustDeleteClaim(each.BoundClaim)
	}
	s.Barrier()
	for _, each := range held {
		s.waitWritten(each.Volume, pod.UID, 10)
		s.ExpectKept(each.Volume)
		now, err := each.BoundClaim.Get(s.Ctx)
		if err != nil || now == nil || now.DeletionTimestamp == nil || now.Status.Phase != v1.ClaimBound {
			s.T.Errorf("WRONG END: a pod writes, and its claim is %s, %v", objects.DescribeClaim(now), err)
		}
	}
	job.expectReplacedEarly()
	s.Must(s.pool.Node(node1).Heal())
	s.waitEnded(node1, pod.UID)
	rejoin(s.Ctx)
	for _, each := range held {
		s.WaitClaim(each.BoundClaim, "gone", fixture.ClaimIsGone)
		s.Must(each.WaitGone(s.WithTimeout()))
		s.ExpectDeleted(each.Volume, 1)
	}
	s.expectReleased(pod.Name, "Finished")
}

// startEphemeral starts a pod on node1 that writes to a claim and to a generic ephemeral volume, and returns these.
func (s *safety) startEphemeral(name string) (*objects.Pod, []*fixture.Provisioned) {
	s.T.Helper()
	class := s.CreateStorageClass()
	claim := s.CreateClaim(class)
	spec := nodes.WriterSpec(claim.Name, "")
	spec.NodeName = node1
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "volume-1", VolumeSource: v1.VolumeSource{
		Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{
			Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class,
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources: v1.VolumeResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}}}}}}})
	pod := s.CreatePod(objects.PodSpec{Name: name, Change: func(pod *v1.Pod) { pod.Spec = spec }})
	volumes := []*fixture.Provisioned{s.WaitBound(claim), s.WaitBound(s.waitClaimOf(name + "-volume-1"))}
	for _, volume := range volumes {
		s.waitWritten(volume.Volume, pod.UID, 5)
	}
	return pod, volumes
}

// work is a Job of one pod that writes to a claim without end, and the pod that it began with on node1.
type work struct {
	*safety
	first  v1.Pod
	volume *objects.Volume
}

// startJob starts a Job that replaces a pod once it is so far.
func (s *safety) startJob(name string, when batchv1.PodReplacementPolicy) *work {
	s.T.Helper()
	s.cordon(s.Ctx, node1, false)
	s.cordon(s.Ctx, node2, true)
	claim := s.CreateClaim(s.CreateStorageClass())
	spec := nodes.WriterSpec(claim.Name)
	spec.RestartPolicy = v1.RestartPolicyNever
	s.Jobs().Create(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{PodReplacementPolicy: &when, Template: v1.PodTemplateSpec{Spec: spec}}})
	s.T.Cleanup(func() {
		s.Must(s.Client.BatchV1().Jobs(s.Namespace).Delete(s.CleanupContext(), name,
			metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	})
	w := &work{safety: s, volume: s.WaitBound(claim).Volume}
	s.until("the pod of the Job is there", func() bool { return len(w.pods()) == 1 })
	w.first = w.pods()[0]
	s.waitWritten(w.volume, w.first.UID, 5)
	return w
}

// pods returns the pods of the Job.
func (w *work) pods() []v1.Pod {
	w.T.Helper()
	list, err := w.Client.CoreV1().Pods(w.Namespace).List(w.Ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel})
	w.Must(err)
	return list.Items
}

// expectReplacedEarly waits until two pods of the Job write at the same time, while the object of the first is held:
// the limit of docs/how-to/pod-safety.md.
func (w *work) expectReplacedEarly() {
	w.T.Helper()
	var overlaps []stamps.Overlap
	w.until("the replacement writes beside the pod", func() bool {
		all, err := w.driver.Stamps(w.volume.Handle)
		w.Must(err)
		overlaps = stamps.Overlaps(all)
		return len(overlaps) == 1 && overlaps[0].First.Pod == w.first.UID && overlaps[0].Late > 10
	})
	w.T.Logf("TWO WRITERS, because a Job goes by the phase: %s", overlaps[0])
	if released := w.released(w.first.Name); released != "" {
		w.T.Errorf("the pod of the Job was released (%s) before its replacement wrote", released)
	}
}
