package admission

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// MissingFinalizers returns the finalizers that the PV is to get in the write that is being admitted, none for
// most. It is a pure function, and the same rule as that of [Policy]: a claimed PV with policy Delete that is not
// being deleted, of a driver in drivers, which gets the finalizer of the driver's role.
//
// The PV is of the driver that the volume was migrated to, of the one that provisioned it and, if nobody
// provisioned it, of the one that it names.
func MissingFinalizers(pv *v1.PersistentVolume, drivers Drivers) (finalizers []string) {
	_, twin := pv.Labels[volume.TwinLabel]
	switch {
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID == "",
		pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete,
		pv.DeletionTimestamp != nil, twin:
		return nil
	}
	return slices.DeleteFunc(drivers.finalizersOf(pv), func(f string) bool { return slices.Contains(pv.Finalizers, f) })
}

// finalizersOf returns the finalizers of the roles in which the PV's drivers are listed.
func (d Drivers) finalizersOf(pv *v1.PersistentVolume) (finalizers []string) {
	of := driversOf(pv)
	for _, role := range roles() {
		if slices.ContainsFunc(of, func(driver string) bool { return slices.Contains(d[role], driver) }) {
			finalizers = append(finalizers, finalizerOf(role))
		}
	}
	return finalizers
}

// driversOf returns the drivers that may answer for a PV.
func driversOf(pv *v1.PersistentVolume) (drivers []string) {
	if migrated, is := pv.Annotations[volume.AnnMigratedTo]; is {
		drivers = append(drivers, migrated)
	}
	if provisioner, is := pv.Annotations[volume.AnnProvisionedBy]; is {
		return append(drivers, provisioner)
	}
	if pv.Spec.CSI != nil {
		drivers = append(drivers, pv.Spec.CSI.Driver)
	}
	return drivers
}

// DenialReason returns why a pod may not be bound to a node, empty if it may: the claim is
// one that the pod names, or owns for a generic ephemeral volume, and is being deleted. The words are
// those of the proposal "Postpone Deletion of a Persistent Volume Claim". It is a pure function.
func DenialReason(pod *v1.Pod, claim *v1.PersistentVolumeClaim) string {
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
