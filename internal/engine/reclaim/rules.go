package reclaim

import "github.com/csi-reclaimer/csi-reclaimer/pkg/volume"

// BrakeAnnotation stops all deletions while the brake's Lease carries it. The brake adds it, as a person may do to
// stop deletions; only a person removes it.
const BrakeAnnotation = "csi-reclaimer.io/brake"

// Mode is the purpose of the finalizers. The zero value honours the reclaim policy.
type Mode uint8

const (
	// ModeHonor keeps a PV until its volume is deleted, in any order of deletion.
	ModeHonor Mode = iota
	// ModeRollback behaves like provisioners before KEP-2644: it removes the finalizers and deletes the remaining volumes
	// of released PVs. It prepares the way back to a version without finalizers.
	ModeRollback
	// ModeRelease removes the finalizers and deletes nothing, in order to remove csi-reclaimer.
	ModeRelease
)

// Scope selects the PVs that are protected. The zero value follows KEP-2644.
type Scope uint8

const (
	// ScopeBoundDelete protects claimed PVs with reclaim policy Delete.
	ScopeBoundDelete Scope = iota
	// ScopeBoundAny protects claimed PVs of every policy, so that a PV is already protected when its policy is set to
	// Delete right before its deletion.
	ScopeBoundAny
)

// Rules are the settings that decisions depend on. The zero value does nothing.
type Rules struct {
	// Driver is the name of the CSI driver that decides.
	Driver string
	Role   volume.Role
	Mode   Mode
	Scope  Scope
	// IgnoreStatic leaves PVs alone that no provisioner created. They still keep a volume from being deleted under
	// another PV.
	IgnoreStatic bool
	// ReclaimUnprotected deletes the volume of a PV that vanished before it could be protected, if that is safe.
	ReclaimUnprotected bool
	// NeverAttached is true if no VolumeAttachment ever names a PV of the driver.
	NeverAttached bool
	// Logged is true if volumes are provisioned through an in-flight log. A PV is left alone while its volume has an
	// entry in the log.
	Logged bool
	// Local is true if volumes are local to nodes, and each node decides on the volumes that it alone reaches.
	Local bool
}

// Protects reports whether a finalizer that counts in this role holds the PV. The companion's counts for an owner as
// well, so that a change of role leaves no PV unprotected. It does not count for an observer, whose peer deletes no
// volume for it. The owner's does not count for a companion, because the peer may remove it.
func (r Rules) Protects(pv volume.PV) bool {
	switch r.Role {
	case volume.RoleCompanion:
		return pv.HasCompanionFinalizer
	case volume.RoleObserver:
		return pv.HasFinalizer
	case volume.RoleOwner, volume.RoleUnknown:
	}
	return pv.HasFinalizer || pv.HasCompanionFinalizer
}

// finalizer returns the finalizer that this role adds, empty for none.
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

// Finalizers returns the finalizers on the PV that this role may remove.
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

// finalizersAfterDeletion returns the finalizers on the PV that this role removes once the volume is deleted. A
// companion then removes the owner's, too, which protects nothing any more: external-provisioner up to 3.0 never
// removes it, and up to 4.0 lacks the permission in its stock ClusterRole.
func (r Rules) finalizersAfterDeletion(pv volume.PV) []string {
	on := r.Finalizers(pv)
	if pv.HasFinalizer && r.Role == volume.RoleCompanion {
		on = append(on, volume.Finalizer)
	}
	return on
}

// ignores reports whether the PV is left alone although the driver owns it.
func (r Rules) ignores(pv volume.PV) bool { return r.IgnoreStatic && !pv.Provisioned() }

// guards reports whether the removal of our finalizer from the PV by others is a loss.
func (r Rules) guards(pv volume.PV) bool {
	return r.finalizer() != "" && r.Mode == ModeHonor && !r.ignores(pv) && pv.Policy == volume.PolicyDelete && pv.Claimed()
}

// due reports whether this process is to delete the PV's volume, as far as the PV itself shows. The brake counts such
// PVs.
func (r Rules) due(pv volume.PV) bool {
	return pv.Deletable() && !pv.Held && !r.ignores(pv) && r.Mode != ModeRelease &&
		(r.Role == volume.RoleOwner || (r.Role == volume.RoleCompanion && pv.Terminating))
}

// Missed reports whether a change made the PV need protection but left it without a finalizer, so that an admission
// policy that adds the finalizer has missed the PV. before is nil for a new PV. A change of the status alone does not
// count, because no policy sees it.
func (r Rules) Missed(before, now *volume.PV) bool {
	wanted := func(pv *volume.PV) bool { return r.guards(*pv) && !pv.Terminating }
	return wanted(now) && !r.Protects(*now) && (before == nil || !wanted(before))
}
