// Package pvclaim judges the claim that a PV names, for the engines that delete the volumes of PVs.
package pvclaim

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Result is the outcome of a live read of the claim that a PV names. The zero value was read for no PV.
type Result struct {
	// Of is the claimRef that the read was made for.
	Of volume.ClaimRef
	// Found reports that a claim of that name exists, with this UID and VolumeName.
	Found      bool
	UID        types.UID
	VolumeName string
}

// ResultOf returns the result of a read for a claimRef. The read returned nil for a claim that does not exist.
func ResultOf(of volume.ClaimRef, o *v1.PersistentVolumeClaim) Result {
	if o == nil {
		return Result{Of: of}
	}
	return Result{Of: of, Found: true, UID: o.UID, VolumeName: o.Spec.VolumeName}
}

// State is the state of the claim that a PV belongs to. The zero value is Unknown.
type State uint8

const (
	// Unknown means that the claim was not read, or was read for another claimRef.
	Unknown State = iota
	Exists
	// NamesPV means that another claim has the name now, and its spec.volumeName is the PV.
	NamesPV
	// Gone means that no claim of the name exists, or that the name belongs to another claim now.
	Gone
)

// State returns the state of the claim of the PV with this name and claimRef. It does not consider the age of the read.
//
// A restore from a backup leaves another claim of the name that names the PV: it creates the objects again, the claim
// with a new UID, while the PV's claimRef has the old one.
func (r Result) State(pv string, ref volume.ClaimRef) State {
	switch {
	case r.Of != ref:
		return Unknown
	case r.Found && r.UID != ref.UID && r.VolumeName == pv:
		return NamesPV
	case !r.Found, r.UID != ref.UID:
		return Gone
	}
	return Exists
}
