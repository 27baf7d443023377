package intree

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
)

// controllers runs one step of the PV controller or of pv-protection, and reports whether one was due.
func (w *world) controllers() bool {
	for _, name := range w.names() {
		if w.controller(name) {
			return true
		}
	}
	return false
}

// controller syncs one PV: pv-protection first, then syncVolume of pv_controller.go.
func (w *world) controller(name string) bool {
	pv := w.pvs[name].DeepCopy()
	if pv.DeletionTimestamp != nil && pv.Status.Phase != v1.VolumeBound && slices.Contains(pv.Finalizers, inUseFinalizer) {
		pv.Finalizers = slices.DeleteFunc(pv.Finalizers, func(f string) bool { return f == inUseFinalizer })
		w.set(pv)
		return true
	}
	if w.modern && w.managed(pv) {
		w.set(pv)
		return true
	}
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return w.phase(pv, v1.VolumeAvailable, "")
	}
	claim, lives := w.claims[ref.Name]
	switch {
	case lives && claim.uid == ref.UID && claim.volume == name:
		return w.phase(pv, v1.VolumeBound, "")
	case lives && claim.uid == ref.UID && pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete:
		pv.Spec.ClaimRef.UID = "" // unbindVolume
		w.set(pv)
		return true
	case pv.Status.Phase != v1.VolumeReleased && pv.Status.Phase != v1.VolumeFailed:
		return w.phase(pv, v1.VolumeReleased, "")
	case pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete ||
		pv.Annotations["pv.kubernetes.io/migrated-to"] != "":
		return false
	}
	return w.deleteVolumeOperation(pv)
}

func (w *world) phase(pv *v1.PersistentVolume, phase v1.PersistentVolumePhase, message string) bool {
	if pv.Status.Phase == phase {
		return false
	}
	pv.Status.Phase, pv.Status.Message = phase, message
	w.set(pv)
	return true
}

// managed is modifyDeletionFinalizers.
func (w *world) managed(pv *v1.PersistentVolume) bool {
	has := slices.Contains(pv.Finalizers, intree.Finalizer)
	want := pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete &&
		pv.Annotations["pv.kubernetes.io/migrated-to"] == ""
	if has == want || want && pv.DeletionTimestamp != nil {
		return false
	}
	guard(want, kcm)(pv)
	return true
}

// deleteVolumeOperation is the function of that name, with the gate HonorPVReclaimPolicy on or off.
func (w *world) deleteVolumeOperation(pv *v1.PersistentVolume) bool {
	if !w.modern && pv.DeletionTimestamp != nil {
		return false
	}
	disk := pv.Spec.HostPath.Path
	if why := w.stuck[disk]; why != "" {
		return w.phase(pv, v1.VolumeFailed, why)
	}
	w.note("plugin deletes %s by %s", disk, pv.Name)
	for name, claim := range w.claims {
		if owner := w.pvs[claim.volume]; owner != nil && owner.Spec.ClaimRef.UID == claim.uid &&
			owner.Spec.HostPath.Path == disk {
			w.t.Errorf("the disk %s of the living claim %s is deleted", disk, name)
		}
	}
	delete(w.disks, disk)
	if w.modern && slices.Contains(pv.Finalizers, intree.Finalizer) {
		guard(false, kcm)(pv)
		w.set(pv)
	}
	if now, found := w.pvs[pv.Name]; !found || now.DeletionTimestamp != nil {
		return true
	}
	w.deletePVBy(pv.Name)
	return true
}
