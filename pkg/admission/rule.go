package admission

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// missingFinalizers is a pure function that returns the finalizers to add to the PV in the write that is being
// admitted, none for most PVs. It has the same rule as [Policy]: a claimed PV with policy Delete that is not being
// deleted, of a driver in drivers, gets the finalizer of the driver's role.
//
// The PV belongs to the driver that its volume was migrated to and to the driver that provisioned it. If no driver
// provisioned it, it belongs to the driver that it names.
func missingFinalizers(pv *v1.PersistentVolume, drivers Drivers) (finalizers []string) {
	_, twin := pv.Labels[volume.TwinLabel]
	switch {
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID == "",
		pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete,
		pv.DeletionTimestamp != nil, twin:
		return nil
	}
	return slices.DeleteFunc(drivers.finalizersOf(pv), func(f string) bool { return slices.Contains(pv.Finalizers, f) })
}

// finalizersOf returns the finalizers of the roles that list one of the PV's drivers.
func (d Drivers) finalizersOf(pv *v1.PersistentVolume) (finalizers []string) {
	of := driversOf(pv)
	for _, role := range roles() {
		if slices.ContainsFunc(of, func(driver string) bool { return slices.Contains(d[role], driver) }) {
			finalizers = append(finalizers, finalizerOf(role))
		}
	}
	return finalizers
}

// driversOf returns the drivers that may be responsible for a PV.
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

// DenialReason is a pure function that returns why a pod must not be bound to a node, or an empty string if it may. The
// reason is a claim that is being deleted and that the pod names, or owns for a generic ephemeral volume. The wording
// is from the proposal "Postpone Deletion of a Persistent Volume Claim".
func DenialReason(pod *v1.Pod, claim *v1.PersistentVolumeClaim) string {
	return (&candidate{pod.ObjectMeta, claimsOf(pod)}).denial(claim)
}

// denial is DenialReason for this pod.
func (p *candidate) denial(claim *v1.PersistentVolumeClaim) string {
	own, used := p.claims[claim.Name]
	switch {
	case !used || claim.Namespace != p.Namespace || claim.DeletionTimestamp == nil:
		return ""
	case own && !metav1.IsControlledBy(claim, p):
		return "" // the claim of an earlier pod of the same name, after which this pod's claim is created
	}
	return fmt.Sprintf("PVC (%s) is in scheduled for deletion state", claim.Name)
}

// claimsOf returns the names of the claims that a pod uses, with true for the claims of its generic ephemeral volumes,
// which it has to own.
func claimsOf(pod *v1.Pod) map[string]bool {
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
