package pv

import (
	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

const (
	// Finalizer holds a PV while it is bound (PVProtectionFinalizer in kubernetes/pkg/volume/util).
	Finalizer = "kubernetes.io/pv-protection"
	// twinLabel marks a PV that exists to have kube-controller-manager delete the volume of another PV.
	twinLabel = "csi-reclaimer.io/twin-of"
)

// Phase indicates whether a claim has the PV; its zero value is a phase that this package does not know, in which the
// PV is kept.
type Phase uint8

// Phases of core/v1, as far as this package distinguishes them.
const (
	PhaseUnknown Phase = iota
	PhaseBound
	// PhaseFree is every known phase but Bound, and also no phase yet.
	PhaseFree
)

// PV holds the recorded fields of a PersistentVolume.
type PV struct {
	inuse.Object
	Phase Phase
	// Twin is true if the PV is a second name of another PV's volume.
	Twin bool
}

// PVOf returns the needed fields of a PersistentVolume, without keeping a reference to it.
func PVOf(o *v1.PersistentVolume) PV {
	_, twin := o.Labels[twinLabel]
	return PV{Object: inuse.ObjectOf(o, Finalizer), Phase: phaseOf(o.Status.Phase), Twin: twin}
}

func phaseOf(p v1.PersistentVolumePhase) Phase {
	switch p {
	case v1.VolumeBound:
		return PhaseBound
	case "", v1.VolumePending, v1.VolumeAvailable, v1.VolumeReleased, v1.VolumeFailed:
		return PhaseFree
	}
	return PhaseUnknown
}

// record keeps the PVs that may need a write, so other PVs take no memory.
var record = kube.RecordIf(PVOf, (*PV).Needs)
