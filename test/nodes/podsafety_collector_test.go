//go:build linux

package nodes

import (
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// testFailedByCollector deletes the Node of a node that is cut off, so that the pod garbage collector sets the phase
// Failed of pods that run. A person then deletes the claims of a pod, and a Job goes by the phase.
func testFailedByCollector(s *safety) {
	pod, held := s.startEphemeral("owner")
	job := s.startJob("job", batchv1.Failed)
	s.partition(node1)
	s.cordon(s.Ctx, node2, false)
	s.Must(s.Client.CoreV1().Nodes().Delete(s.Ctx, node1, metav1.DeleteOptions{}))
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
	pod, err := s.MakePod(s.Ctx, objects.PodSpec{Name: name, Change: func(pod *v1.Pod) { pod.Spec = spec }})
	s.Must(err)
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
	_, err := s.Client.BatchV1().Jobs(s.Namespace).Create(s.Ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{PodReplacementPolicy: &when, Template: v1.PodTemplateSpec{Spec: spec}}},
		metav1.CreateOptions{})
	s.Must(err)
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
