package intree

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// twinOf tells whether a PV is the twin of another: it names it in its label and annotation, has the
// name that its twin has, and is a name of the same volume. Only such a PV is ever written to.
func twinOf(twin, pv PV) bool {
	return pv.UID != "" && twin.UID != pv.UID && twin.TwinOf == pv.UID && twin.Original == pv.Name &&
		twin.looksLikeTwin() && twin.Source == pv.Source && twin.ProvisionedBy == pv.ProvisionedBy
}

// looksLikeTwin tells whether a PV is a twin as this package makes them, as far as it shows by itself.
func (pv PV) looksLikeTwin() bool {
	return pv.TwinOf != "" && pv.Original != "" && pv.Name == TwinName(pv.Original) && pv.Source.Known() &&
		strings.HasPrefix(pv.ProvisionedBy, inTree)
}

// armed tells whether the PV controller deletes the volume of a twin that it has released. A policy
// that is not known here counts.
func (pv PV) armed() bool { return pv.Policy != volume.PolicyRetain }

// twinState is how far the twin is.
type twinState uint8

const (
	// twinForeign: a PV has the twin's name that is no twin.
	twinForeign twinState = iota
	twinNone
	// twinChanged: it is the twin, and not as it was made: in use, or of another claim.
	twinChanged
	// twinEnding: it is being deleted.
	twinEnding
	// twinFailed: the PV controller could not delete the volume.
	twinFailed
	// twinMade: the PV controller has not looked at it yet.
	twinMade
	// twinReleased: the PV controller has seen that its claim is gone. With a living claim it would take
	// the claim away from it instead (syncVolume, unbindVolume in pv_controller.go).
	twinReleased
	// twinArmed: the PV controller is to delete the volume.
	twinArmed
)

// twinState judges the PV that has the name of PV's twin.
func (s Snapshot) twinState() twinState {
	t := s.Twin
	switch {
	case !s.TwinFound:
		return twinNone
	case !s.twin():
		return twinForeign
	case t.Claim != s.PV.Claim, t.MigratedTo != "", t.Policy != volume.PolicyRetain && t.Policy != volume.PolicyDelete:
		return twinChanged
	case t.Phase == volume.PhaseFailed && !t.Terminating:
		return twinFailed
	case t.Phase != volume.PhasePending && t.Phase != volume.PhaseUnknown && !t.released():
		return twinChanged
	case t.Terminating:
		return twinEnding
	case t.Policy == volume.PolicyDelete:
		return twinArmed
	case t.Phase == volume.PhaseReleased:
		return twinReleased
	}
	return twinMade
}

// retire returns the next step to have a twin of ours do no more: disarmed first, then deleted. A
// PV that is bound is in use, whoever made it, and is not deleted.
//
// atRest tells that nothing is left to be done: the twin keeps its volume, and is going or in use. The
// PV controller reads neither the policy nor the original again once it has begun
// (deleteVolumeOperation), so what comes later than that is too late. One that is armed and going
// is left to its end, which shows whether the volume is deleted: before 1.31 the PV controller does
// nothing for a PV that is going.
//
// From 1.31 on the PV controller puts the finalizer on what is armed, twins too. One from before that takes
// over, as in the midst of an upgrade, never takes it off; on a twin that keeps its volume nothing depends
// on it.
func retire(s Snapshot, why Reason) (_ Decision, atRest bool) {
	twin := s.Twin
	switch {
	case twin.armed() && twin.Terminating && twin.Guard == WriterNone && s.Manages == ManagesNobody && !s.Releasing:
		return wait(ReasonTwinEnding), false
	case twin.armed():
		return step(DisarmTwin, why), false
	case twin.Terminating && twin.Guard != WriterNone:
		return step(FreeTwin, why), false
	case twin.Terminating, twin.Phase == volume.PhaseBound:
		return Decision{}, true
	}
	return step(DeleteTwin, why), false
}

// orphan handles a twin whose original is not there: the volume is nobody's to delete any more.
func orphan(s Snapshot, now time.Time) Decision {
	switch {
	case !s.TwinFound || !s.Twin.looksLikeTwin():
		return wait(ReasonNotOurs)
	case !s.Original.Read.fresh(now):
		return step(ReadOriginal, ReasonOrphan)
	case !s.Original.Gone:
		return Decision{Reason: ReasonCatchingUp, Timed: true}
	}
	if d, atRest := retire(s, ReasonOrphan); !atRest {
		return d
	}
	return wait(ReasonOrphan)
}

// Annotations that a twin does not take over. With the first, the PV controller would take the claim
// away from it altogether (unbindVolume); by the second, kubectl would take it for the original.
const (
	annBoundByController = "pv.kubernetes.io/bound-by-controller"
	annLastApplied       = v1.LastAppliedConfigAnnotation
)

// newTwin returns the twin of a PV as it is created: a second name of the same volume, which keeps it.
// It has none of the PV's finalizers, so that the PV controller's own deletion ends it.
func newTwin(o *v1.PersistentVolume) *v1.PersistentVolume {
	twin := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        TwinName(o.Name),
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
