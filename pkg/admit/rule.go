package admit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// What a PV says about itself, beside its fields.
const (
	annProvisionedBy = "pv.kubernetes.io/provisioned-by"
	annMigratedTo    = "pv.kubernetes.io/migrated-to"
	twinLabel        = "csi-reclaimer.io/twin-of"
)

// Missing returns the finalizer that the PV is to get in the write that is being taken, empty for
// none. finalizers says which finalizer each driver's PVs get. It is a pure function, and the same rule
// as that of [Policy]: a claimed PV with policy Delete that is not being deleted.
//
// Finalizers that are none of csi-reclaimer's do not count: one that is misspelt would have the API
// server refuse every write to the driver's PVs.
//
// The driver is the one that the volume was migrated to, else the one that provisioned it, else, for a
// PV that nobody provisioned, the one that it names; the first of them that is listed.
func Missing(pv *v1.PersistentVolume, finalizers map[string]string) string {
	_, twin := pv.Labels[twinLabel]
	switch {
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID == "",
		pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete,
		pv.DeletionTimestamp != nil, twin:
		return ""
	}
	for _, driver := range driversOf(pv) {
		finalizer := finalizers[driver]
		switch {
		case finalizer != reclaim.Finalizer && finalizer != reclaim.CompanionFinalizer:
		case slices.Contains(pv.Finalizers, finalizer):
			return ""
		default:
			return finalizer
		}
	}
	return ""
}

// driversOf returns who may answer for a PV; the first that is known does.
func driversOf(pv *v1.PersistentVolume) (drivers []string) {
	if migrated, is := pv.Annotations[annMigratedTo]; is {
		drivers = append(drivers, migrated)
	}
	if provisioner, is := pv.Annotations[annProvisionedBy]; is {
		return append(drivers, provisioner)
	}
	if pv.Spec.CSI != nil {
		drivers = append(drivers, pv.Spec.CSI.Driver)
	}
	return drivers
}

// Refusal returns why a pod may not be put on a node, empty if nothing is known against it: the claim is
// one that the pod names, or owns for a generic ephemeral volume, and is being deleted. The words are
// those of the proposal "Postpone Deletion of a Persistent Volume Claim". It is a pure function.
func Refusal(pod *v1.Pod, claim *v1.PersistentVolumeClaim) string {
	own, used := ClaimsOf(pod)[claim.Name]
	switch {
	case !used || claim.Namespace != pod.Namespace || claim.DeletionTimestamp == nil:
		return ""
	case own && !metav1.IsControlledBy(claim, pod):
		return "" // an earlier pod's, of the same name: this pod's is made once that is gone
	}
	return fmt.Sprintf("PVC (%s) is in scheduled for deletion state", claim.Name)
}

// ClaimsOf returns the names of the claims that a pod uses, and whether it is to own them: those of
// its generic ephemeral volumes.
func ClaimsOf(pod *v1.Pod) map[string]bool {
	names := map[string]bool{}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Ephemeral != nil {
			names[pod.Name+"-"+v.Name] = true // the name is fixed (k8s.io/component-helpers/storage/ephemeral)
		}
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil {
			names[v.PersistentVolumeClaim.ClaimName] = false
		}
	}
	return names
}
