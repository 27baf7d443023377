package intree

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// isTwinOf reports whether a PV is the twin of another: its label and annotation name that PV, it has the name of that
// PV's twin, and it names the same volume. No other PV is ever written to as a twin.
func isTwinOf(twin, pv PV) bool {
	return twin.TwinOf == pv.UID && twin.Original == pv.Name && twin.LooksLikeTwin() &&
		twin.Source == pv.Source && twin.ProvisionedBy == pv.ProvisionedBy
}

// LooksLikeTwin reports whether a PV, as far as it shows itself, is a twin created by this package.
func (pv PV) LooksLikeTwin() bool {
	return pv.TwinOf != "" && pv.Original != "" && pv.Name == volume.TwinName(pv.Original) && pv.Source.Known() &&
		strings.HasPrefix(pv.ProvisionedBy, inTree)
}

// deletes reports whether the PV controller deletes the volume of a twin that it has released; an unknown policy counts
// as deleting.
func (pv PV) deletes() bool { return pv.Policy != volume.PolicyRetain }

// twinState is the stage of the twin.
type twinState uint8

const (
	// twinForeign: a PV that is no twin has the twin's name.
	twinForeign twinState = iota
	twinNone
	// twinChanged: the twin was changed after its creation: it is in use, or belongs to another claim.
	twinChanged
	// twinTerminating: it has a deletionTimestamp.
	twinTerminating
	// twinFailed: the PV controller could not delete the volume.
	twinFailed
	// twinCreated: the PV controller has not synced it yet.
	twinCreated
	// twinReleased: the PV controller has seen that the twin's claim is gone. It would take an existing claim away from
	// the twin instead (syncVolume, unbindVolume in pv_controller.go).
	twinReleased
	// twinDeleting: the policy is Delete, and the PV controller is to delete the volume.
	twinDeleting
)

// twinState judges the PV with the name of PV's twin.
func (f Facts) twinState() twinState {
	t := f.Twin
	switch {
	case !f.TwinFound:
		return twinNone
	case !f.twin():
		return twinForeign
	case t.Claim != f.PV.Claim, t.MigratedTo != "", t.Policy != volume.PolicyRetain && t.Policy != volume.PolicyDelete:
		return twinChanged
	case t.Phase == volume.PhaseFailed && !t.Terminating:
		return twinFailed
	case t.Phase != volume.PhasePending && t.Phase != volume.PhaseUnknown && !t.released():
		return twinChanged
	case t.Terminating:
		return twinTerminating
	case t.Policy == volume.PolicyDelete:
		return twinDeleting
	case t.Phase == volume.PhaseReleased:
		return twinReleased
	}
	return twinCreated
}

// endTwin returns the next step to end a twin without deleting its volume: the policy is set to Retain first, then the
// twin is deleted. A bound PV is in use, no matter who created it, and is not deleted.
//
// ended means that nothing is left to do, because the twin keeps its volume and is terminating or in use. Once the PV
// controller has begun, it reads neither the policy nor the original again (deleteVolumeOperation), so later changes
// come too late. A terminating twin with policy Delete is left to its end, which shows whether the volume is deleted:
// before 1.31 the PV controller does nothing for a terminating PV.
//
// From 1.31 on, the PV controller adds the finalizer to every PV with policy Delete, twins included. An older PV
// controller that takes over, for example during an upgrade, never removes it, and nothing depends on it if the twin
// keeps its volume.
func endTwin(f Facts, why Reason) (_ Decision, ended bool) {
	twin := f.Twin
	switch {
	case twin.deletes() && twin.Terminating && twin.Writer == WriterNone && f.Other == OtherAbsent &&
		!f.RemovingFinalizers:
		return wait(ReasonTwinTerminating), false
	case twin.deletes():
		return step(SetTwinRetain, why), false
	case twin.Terminating && twin.Writer != WriterNone:
		return step(RemoveTwinFinalizer, why), false
	case twin.Terminating, twin.Phase == volume.PhaseBound:
		return Decision{}, true
	}
	return step(DeleteTwin, why), false
}

// orphan handles a twin whose original does not exist: no program may delete the volume any more.
func orphan(f Facts, now time.Time) Decision {
	switch {
	case !f.TwinFound || !f.Twin.LooksLikeTwin():
		return wait(ReasonNotOurs)
	case !f.OriginalRead.Fresh(now):
		return step(ReadOriginal, ReasonOrphan)
	case !f.OriginalGone:
		return timed(ReasonCacheStale)
	}
	if d, ended := endTwin(f, ReasonOrphan); !ended {
		return d
	}
	return wait(ReasonOrphan)
}

// Annotations that are not copied to a twin: with the first, the PV controller would remove the twin's claimRef
// (unbindVolume); with the second, kubectl would mistake the twin for the original.
const (
	annBoundByController = "pv.kubernetes.io/bound-by-controller"
	annLastApplied       = v1.LastAppliedConfigAnnotation
)

// NewTwin returns the twin to create for a PV: a second name of the same volume, which keeps it (policy Retain). The
// twin has none of the PV's finalizers, so the PV controller's own deletion ends it; the PV is not changed.
func NewTwin(o *v1.PersistentVolume) *v1.PersistentVolume {
	twin := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        volume.TwinName(o.Name),
			Labels:      map[string]string{volume.TwinLabel: string(o.UID)},
			Annotations: map[string]string{},
		},
		Spec: *o.Spec.DeepCopy(),
	}
	for key, value := range o.Annotations {
		if key != annBoundByController && key != annLastApplied {
			twin.Annotations[key] = value
		}
	}
	twin.Annotations[twinOfAnnotation] = o.Name
	twin.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
	return twin
}
