package watch

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
)

type pv struct {
	explain.PV
	// object holds all fields that an explanation, a row or a graph reads.
	object *v1.PersistentVolume
	// asks holds the fields that decisions on locks read, among them the attributes by which a fence covers a volume.
	// It is nil if no lock is read.
	asks *locks.PV
}

type pod struct {
	nodes.Pod
	uses pvc.Pod
}

// trimMeta drops unread metadata, but keeps the managers of finalizers in managedFields.
func trimMeta(o *metav1.ObjectMeta) {
	delete(o.Annotations, v1.LastAppliedConfigAnnotation)
	o.ManagedFields = finalizerFields(o.ManagedFields)
}

// finalizerFields returns the entries that set finalizers, without their other fields.
func finalizerFields(all []metav1.ManagedFieldsEntry) (kept []metav1.ManagedFieldsEntry) {
	for _, entry := range all {
		if entry.FieldsV1 == nil || !bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:finalizers"`)) {
			continue
		}
		var set struct {
			Metadata struct {
				Finalizers json.RawMessage `json:"f:finalizers,omitempty"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
			continue
		}
		text, err := json.Marshal(set)
		if err != nil {
			continue
		}
		kept = append(kept, metav1.ManagedFieldsEntry{Manager: entry.Manager, Operation: entry.Operation,
			FieldsV1: metav1.NewFieldsV1(string(text))})
	}
	return kept
}

// pvOf returns the conversion of a PV, which keeps the fields that locks need if withLocks is set.
func pvOf(withLocks bool) func(*v1.PersistentVolume) pv {
	return func(o *v1.PersistentVolume) pv {
		var asks *locks.PV
		if withLocks {
			asks = locks.PVOf(o)
		}
		trimMeta(&o.ObjectMeta)
		if o.Spec.CSI != nil {
			o.Spec.CSI.VolumeAttributes = nil
		}
		return pv{PV: explain.PVOf(o), object: o, asks: asks}
	}
}

func claimOf(o *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	trimMeta(&o.ObjectMeta)
	return o
}

func podOf(o *v1.Pod) pod { return pod{nodes.PodOf(o), pvc.PodOf(o)} }

// matters reports whether a pod can be in a row or in a graph.
func matters(p pod) bool { return len(p.Claims) > 0 || p.Terminating || p.Held || p.Gated }

// nodeOf drops fields that change with each heartbeat, and unread fields: names of images, addresses, sizes.
func nodeOf(o *v1.Node) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, Labels: o.Labels, Annotations: o.Annotations,
			CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp, Finalizers: o.Finalizers},
		Spec:   v1.NodeSpec{Taints: o.Spec.Taints, Unschedulable: o.Spec.Unschedulable},
		Status: v1.NodeStatus{Conditions: slices.Clone(o.Status.Conditions)},
	}
	info := &o.Status.NodeInfo
	n.Status.NodeInfo = v1.NodeSystemInfo{BootID: info.BootID, MachineID: info.MachineID, SystemUUID: info.SystemUUID}
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return n
}

func attachmentOf(o *storagev1.VolumeAttachment) storagev1.VolumeAttachment {
	trimMeta(&o.ObjectMeta)
	o.Spec.Source.InlineVolumeSpec = nil
	o.Status.AttachmentMetadata = nil
	return *o
}

func driverOf(o *storagev1.CSIDriver) string { return o.Name }

func classOf(o *storagev1.StorageClass) *storagev1.StorageClass {
	trimMeta(&o.ObjectMeta)
	return o
}

func fenceOf(o *v1alpha1.NodeFence) *v1alpha1.NodeFence {
	o.ManagedFields = nil
	return o
}

func leaseOf(o *coordinationv1.Lease) coordinationv1.Lease {
	o.ManagedFields = nil
	return *o
}

// samePod reports whether two records of a pod differ at most in the resourceVersion.
func samePod(before, now pod) bool {
	before.ResourceVersion = now.ResourceVersion
	return reflect.DeepEqual(before, now)
}

func sameNode(before, now *v1.Node) bool { return reflect.DeepEqual(before, now) }

func never[R any](_, _ R) bool { return false }

func sameNames(before, now []string) bool { return slices.Equal(before, now) }

func sameName(string, string) bool { return true }

// sameLease reports whether two records of a Lease differ only in its renewal by the same holder.
func sameLease(before, now coordinationv1.Lease) bool {
	holder := func(l coordinationv1.Lease) string {
		if l.Spec.HolderIdentity == nil {
			return ""
		}
		return *l.Spec.HolderIdentity
	}
	return before.UID == now.UID && holder(before) == holder(now) && reflect.DeepEqual(before.Annotations, now.Annotations)
}
