package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	// Finalizer holds an in-tree PV until its volume is deleted. It is the one that kube-controller-manager adds from
	// 1.31 on (storagehelpers.PVDeletionInTreeProtectionFinalizer).
	Finalizer = intree.Finalizer
	// FieldManager is the name under which this package writes.
	FieldManager = intree.FieldManager
)

// Reason says why something is done about a PV, or nothing. The same word is an Event's reason, a value in the log and
// a label of the metrics.
type Reason = intree.Reason

// Reasons of Events that other programs react to.
const (
	ReasonClaimNamesPV       = intree.ReasonClaimNamesPV
	ReasonVolumeFailedDelete = intree.ReasonVolumeFailedDelete
	ReasonPluginGone         = intree.ReasonPluginGone
)

// Reasons returns every reason there is.
func Reasons() []Reason { return intree.Reasons() }

// TwinName returns the name of the twin of the PV with this name.
func TwinName(pv string) string { return volume.TwinName(pv) }
