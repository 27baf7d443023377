package watch

import (
	"bytes"
	"encoding/json"
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

type pv struct {
	explain.PV
	// object holds all fields that an explanation, a row or a graph reads.
	object *v1.PersistentVolume
}

// trimmed returns an object without unread metadata, but with the managers of finalizers in managedFields.
func trimmed[O metav1.Object](o O) O {
	delete(o.GetAnnotations(), v1.LastAppliedConfigAnnotation)
	o.SetManagedFields(finalizerFields(o.GetManagedFields()))
	return o
}

// unmanaged returns an object without managedFields.
func unmanaged[O metav1.Object](o O) O {
	o.SetManagedFields(nil)
	return o
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

// pvOf returns the conversion of a PV. For decisions on locks, it keeps the attributes by which a fence covers a
// volume.
func pvOf(withLocks bool) func(*v1.PersistentVolume) pv {
	return func(o *v1.PersistentVolume) pv {
		trimmed(o)
		if o.Spec.CSI != nil && !withLocks {
			o.Spec.CSI.VolumeAttributes = nil
		}
		return pv{PV: explain.PVOf(o), object: o}
	}
}

// matters reports whether a pod can be in a row or in a graph.
func matters(p explain.Pod) bool { return len(p.Claims) > 0 || p.Terminating || p.Held || p.Gated }

func attachmentOf(o *storagev1.VolumeAttachment) storagev1.VolumeAttachment {
	trimmed(o)
	o.Spec.Source.InlineVolumeSpec = nil
	o.Status.AttachmentMetadata = nil
	return *o
}

func leaseOf(o *coordinationv1.Lease) coordinationv1.Lease { return *unmanaged(o) }

// samePod reports whether two records of a pod differ at most in the resourceVersion.
func samePod(before, now explain.Pod) bool {
	before.ResourceVersion = now.ResourceVersion
	return reflect.DeepEqual(before, now)
}

func sameNode(before, now *v1.Node) bool { return reflect.DeepEqual(before, now) }

func never[R any](_, _ R) bool { return false }

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
