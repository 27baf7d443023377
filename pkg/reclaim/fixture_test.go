package reclaim

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const driver = "disk.csi.example.com"

// now is the time when tests begin.
func now() time.Time { return time.Unix(1_000_000, 0) }

// released returns the facts of a PV whose volume is to be deleted.
func released() reclaim.Facts {
	return reclaim.Facts{PV: volume.PV{
		Name: "pv", UID: "pv-uid", ResourceVersion: "10",
		Driver: driver, Handle: "vol-1", ProvisionedBy: driver,
		Policy: volume.PolicyDelete, Phase: volume.PhaseReleased,
		Claim:        volume.ClaimRef{Namespace: "ns", Name: "claim", UID: "claim-uid"},
		HasFinalizer: true,
	}}
}

// sibling returns another PV of the same volume that is to be deleted too.
func sibling() volume.PV {
	pv := released().PV
	pv.Name, pv.UID = "other", "other-uid"
	return pv
}
