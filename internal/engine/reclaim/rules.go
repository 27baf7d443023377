package reclaim

import "github.com/csi-reclaimer/csi-reclaimer/pkg/volume"

// BrakeAnnotation on the brake's Lease stops all deletions for as long as it is there. The
// brake adds it, or a person to stop deletions; a person removes it.
const BrakeAnnotation = "csi-reclaimer.io/brake"

// Mode is what the finalizers are for. The zero value is to honour the reclaim policy.
type Mode uint8

const (
	// ModeHonor keeps a PV until its volume is deleted, in any order of deletion.
	ModeHonor Mode = iota
	// ModeRollback does what provisioners did before KEP-2644: removes the finalizers, and
	// deletes the volumes of released PVs that nobody deleted. The way back to a version
	// without support for them.
	ModeRollback
	// ModeRelease only removes the finalizers, and deletes nothing: the way out.
	ModeRelease
)

// Scope is which PVs are protected. The zero value is that of KEP-2644.
type Scope uint8

const (
	// ScopeBoundDelete protects claimed PVs with reclaim policy Delete.
	ScopeBoundDelete Scope = iota
	// ScopeBoundAny protects claimed PVs of every policy, so that a PV whose policy is turned
	// to Delete right before it is deleted is protected already.
	ScopeBoundAny
)

// Rules are the settings that decisions depend on. The zero value does nothing.
type Rules struct {
	// Driver is the name of the CSI driver that decides.
	Driver string
	Role   volume.Role
	Mode   Mode
	Scope  Scope
	// IgnoreStatic: PVs that no provisioner created are left alone. They still keep a volume
	// from being deleted under another PV.
	IgnoreStatic bool
	// ReclaimUnprotected: the volume of a PV that vanished before it could be protected is
	// deleted where that is safe.
	ReclaimUnprotected bool
	// NeverAttached: no VolumeAttachment ever names a PV of the driver.
	NeverAttached bool
	// Logged: volumes are provisioned by an in-flight log. A PV is left as it is while its volume has an entry there.
	Logged bool
	// Local: volumes are local to nodes, each of which decides on those that it alone reaches.
	Local bool
}

// Protects reports whether a finalizer that counts in this role holds the PV. To an owner the
// companion's counts as well, so that a change of role leaves no PV unprotected; to a
// companion the owner's does not, for the peer removes that one.
func (r Rules) Protects(pv volume.PV) bool {
	if r.Role == volume.RoleCompanion {
		return pv.HasCompanionFinalizer
	}
	return pv.HasFinalizer || pv.HasCompanionFinalizer
}

// finalizer is the one that this role adds, empty if it adds none.
func (r Rules) finalizer() string {
	switch r.Role {
	case volume.RoleOwner:
		return volume.Finalizer
	case volume.RoleCompanion:
		return volume.CompanionFinalizer
	case volume.RoleObserver, volume.RoleUnknown:
	}
	return ""
}

// Finalizers returns those on the PV that this role may remove.
func (r Rules) Finalizers(pv volume.PV) []string {
	var on []string
	if pv.HasFinalizer && r.Role == volume.RoleOwner {
		on = append(on, volume.Finalizer)
	}
	if pv.HasCompanionFinalizer && (r.Role == volume.RoleOwner || r.Role == volume.RoleCompanion) {
		on = append(on, volume.CompanionFinalizer)
	}
	return on
}

// ignores reports whether the PV is one that nothing is done for although the driver owns it.
func (r Rules) ignores(pv volume.PV) bool { return r.IgnoreStatic && !pv.Provisioned() }

// guards reports whether a finalizer that others remove from the PV is a loss.
func (r Rules) guards(pv volume.PV) bool {
	return r.finalizer() != "" && r.Mode == ModeHonor && !r.ignores(pv) && pv.Policy == volume.PolicyDelete && pv.Claimed()
}

// due reports whether the PV is one whose volume this process is to delete, as far as the PV
// itself shows. It is what the brake counts.
func (r Rules) due(pv volume.PV) bool {
	return pv.Deletable() && !pv.Held && !r.ignores(pv) && r.Mode != ModeRelease &&
		(r.Role == volume.RoleOwner || (r.Role == volume.RoleCompanion && pv.Terminating))
}

// Missed reports whether a change made the PV one to be protected, and left it without a finalizer, so that an
// admission policy that adds it has missed the PV. before is nil for a PV that is new. A change of the status alone,
// which no policy sees, is none.
func (r Rules) Missed(before, now *volume.PV) bool {
	wanted := func(pv *volume.PV) bool { return r.guards(*pv) && !pv.Terminating }
	return wanted(now) && !r.Protects(*now) && (before == nil || !wanted(before))
}
