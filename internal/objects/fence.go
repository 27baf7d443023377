package objects

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// FenceFinalizer is the finalizer of every NodeFence whose fence has begun and not ended.
const FenceFinalizer = "csi-reclaimer.io/fence"

// NodeFence holds the fields of a NodeFence that decisions are made from. The zero value is a NodeFence that does not
// exist.
type NodeFence struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Generation      int64
	Created         time.Time
	// Terminating reports a deletionTimestamp, Finalized reports FenceFinalizer, and GivenUp reports
	// v1alpha1.AnnotationTimedOut.
	Terminating, Finalized, GivenUp bool
	Spec                            v1alpha1.NodeFenceSpec
	Status                          v1alpha1.NodeFenceStatus
}

// NodeFenceOf returns the record of a NodeFence. NodeFences are few, so that it shares spec and status with o.
func NodeFenceOf(o *v1alpha1.NodeFence) NodeFence {
	_, givenUp := o.Annotations[v1alpha1.AnnotationTimedOut]
	return NodeFence{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
		Created: o.CreationTimestamp.Time, Terminating: o.DeletionTimestamp != nil,
		Finalized: slices.Contains(o.Finalizers, FenceFinalizer), GivenUp: givenUp, Spec: o.Spec, Status: o.Status}
}

// Fence is the evidence that the fence of a node gives about one pod on the node. The zero value means that it gives
// none, or that no fence exists.
type Fence struct {
	// InForce reports that the fence is proven, not contradicted, and not about to end.
	InForce bool
	// Coverage is the extent of the proof of the agent, "" if it is unknown.
	Coverage v1alpha1.Coverage
	// SinceTerminating reports that the pod was terminating before the fence began, according to the order of writes.
	SinceTerminating bool
	// BootID is the boot ID of the Node that the fence has ended, and Machine the machine that the Node showed then.
	BootID  string
	Machine Machine
	// Volumes are the volumes that a fence of volumes covers.
	Volumes []v1alpha1.CoveredVolumes
}

// MayEndPod reports whether the fence may prove that no process of the pod runs.
func (f Fence) MayEndPod() bool {
	return f.InForce && (f.Coverage == v1alpha1.CoversUntilUnfenced ||
		f.Coverage == v1alpha1.CoversReboot && f.SinceTerminating)
}

// EndsPod reports whether the fence proves that no process of the pod runs, given a read of the Node after the fence. A
// machine that is powered on while its fence is in force has another boot ID, and may restart pods that were not
// terminating before.
func (f Fence) EndsPod(node Node) bool { return f.MayEndPod() && !node.MayRun() && f.OfRun(node) }

// OfRun reports whether the fence has ended the boot of the node that may have started the pod, given a read of the
// Node that followed a read of the terminating pod. Either the Node still has the boot ID that the fence has ended, or
// the pod was terminating before the fence began, so that no later boot starts it.
func (f Fence) OfRun(node Node) bool {
	return f.SinceTerminating || node.BootID != "" && node.BootID == f.BootID
}

// EndedRun reports whether the node, which the fence keeps from volumes, was rebooted since the proof, given a read of
// the Node after the fence. The fence then hinders no unmount: the mounts from before are gone, and the new boot cannot
// mount the fenced volumes. A kubelet mounts an attachable volume only after it has written the status of its Node in
// this boot (ReportedInUse in pkg/volume/util/operationexecutor), and the Node had the earlier boot ID at the proof.
// Another machine under the name of the node is no reboot, because the former machine may run on with the volumes
// mounted.
func (f Fence) EndedRun(node Node) bool {
	return f.InForce && f.Coverage == v1alpha1.CoversVolumes && f.BootID != "" && node.BootID != "" &&
		node.BootID != f.BootID && !f.Machine.IsOther(node.Machine)
}

// CoversVolume reports whether the fence keeps the node from a volume.
func (f Fence) CoversVolume(v Volume) bool {
	return f.InForce && f.Coverage == v1alpha1.CoversVolumes && CoversVolume(f.Volumes, v)
}
