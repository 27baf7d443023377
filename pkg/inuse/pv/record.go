package pv

import (
	"slices"

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

// free has the phases in which no claim has the PV. A PV is kept in a phase that this package does not know.
var free = []v1.PersistentVolumePhase{"", v1.VolumePending, v1.VolumeAvailable, v1.VolumeReleased, v1.VolumeFailed}

// PV holds the recorded fields of a PersistentVolume.
type PV struct {
	inuse.Object
	// Free is true if no claim has the PV.
	Free bool
	// Twin is true if the PV is a second name of another PV's volume.
	Twin bool
}

// PVOf returns the needed fields of a PersistentVolume, without keeping a reference to it.
func PVOf(o *v1.PersistentVolume) PV {
	_, twin := o.Labels[twinLabel]
	return PV{Object: inuse.ObjectOf(o, Finalizer), Free: slices.Contains(free, o.Status.Phase), Twin: twin}
}

// record keeps the PVs that may need a write, so other PVs take no memory.
var record = kube.RecordIf(PVOf, (*PV).Needs)
