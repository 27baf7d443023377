package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	// Finalizer holds an in-tree PV until its volume is deleted. It is the finalizer that kube-controller-manager adds
	// from 1.31 on (storagehelpers.PVDeletionInTreeProtectionFinalizer).
	Finalizer = intree.Finalizer
	// FieldManager is the field manager of this package's writes.
	FieldManager = intree.FieldManager
)

// Reason explains a step for a PV, or why no step is taken. The same word is an Event's reason, a value in the log and
// a label of the metrics.
type Reason = intree.Reason

// Reasons of Events that other programs react to.
var (
	ReasonClaimNamesPV       = intree.ReasonClaimNamesPV
	ReasonVolumeFailedDelete = intree.ReasonVolumeFailedDelete
	ReasonPluginGone         = intree.ReasonPluginGone
)

// Reasons returns every reason.
func Reasons() []Reason { return intree.Reasons() }

// TwinName returns the name of the PV's twin.
func TwinName(pv string) string { return volume.TwinName(pv) }
