package pv

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

const (
	// Finalizer holds a PV while it is bound (PVProtectionFinalizer in kubernetes/pkg/volume/util).
	Finalizer = "kubernetes.io/pv-protection"
	// twinLabel marks a PV that has kube-controller-manager delete the volume of another one.
	twinLabel = "csi-reclaimer.io/twin-of"
)

// Phase says whether a claim has the PV. The zero value is one that this package does not know, in
// which the PV is kept.
type Phase uint8

// The phases of core/v1, as far as they are distinguished.
const (
	PhaseUnknown Phase = iota
	PhaseBound
	// PhaseFree is every phase but Bound, also none yet.
	PhaseFree
)

// PV is what is kept of a PersistentVolume.
type PV struct {
	inuse.Object
	Phase Phase
	// Twin: the PV is a second name of another PV's volume.
	Twin bool
}

// PVOf reads what is needed of a PersistentVolume, without keeping a reference to it.
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

// record keeps the PVs that may need something. Others take no memory.
func record(object runtime.Object, _ bool) (_ *PV, keep bool, err error) {
	api, ok := object.(*v1.PersistentVolume)
	if !ok {
		return nil, false, fmt.Errorf("watch PVs: got a %T", object)
	}
	pv := PVOf(api)
	return &pv, pv.Needs(), nil
}
