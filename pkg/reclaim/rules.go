package reclaim

// Role says what else works on the driver's PVs. The zero value is not known, in which
// nothing is done.
type Role uint8

const (
	// RoleUnknown does nothing.
	RoleUnknown Role = iota
	// RoleOwner: nobody else deletes this driver's volumes or puts finalizers on its PVs.
	RoleOwner
	// RoleCompanion: an external-provisioner that does not honour the policy of PVs which
	// are deleted before their claim works beside (4.x and older, or with the feature gate
	// HonorPVReclaimPolicy off). It deletes the others.
	RoleCompanion
	// RoleObserver: an external-provisioner that honours the policy works beside (5.0 and
	// newer). Nothing is written to a PV; what leaks nevertheless is reported, and deleted
	// if Config.ReclaimUnprotected says so.
	RoleObserver
)

// String returns the role as it is written on the command line.
func (r Role) String() string {
	switch r {
	case RoleOwner:
		return "owner"
	case RoleCompanion:
		return "companion"
	case RoleObserver:
		return "observer"
	case RoleUnknown:
	}
	return "unknown"
}

// Mode says what the finalizers are for. The zero value is to honour the reclaim policy.
type Mode uint8

const (
	// ModeHonor keeps a PV until its volume is deleted, in any order of deletion.
	ModeHonor Mode = iota
	// ModeRollback does what provisioners did before KEP-2644: takes the finalizers off, and
	// deletes the volumes of released PVs that nobody deleted. The way back to a version
	// that does not know them.
	ModeRollback
	// ModeRelease only takes the finalizers off, and deletes nothing: the way out.
	ModeRelease
)

// Scope says which PVs are protected. The zero value is what KEP-2644 says.
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
	Role   Role
	Mode   Mode
	Scope  Scope
	// IgnoreStatic: PVs that no provisioner made are left alone. They still keep a volume
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

// protects tells whether a finalizer that counts in this role holds the PV. To an owner the
// companion's counts as well, so that a change of role leaves no PV unprotected; to a
// companion the owner's does not, for the peer takes that one off.
func (r Rules) protects(pv PV) bool {
	if r.Role == RoleCompanion {
		return pv.HasCompanionFinalizer
	}
	return pv.HasFinalizer || pv.HasCompanionFinalizer
}

// finalizer is the one that this role puts on, empty if it puts on none.
func (r Rules) finalizer() string {
	switch r.Role {
	case RoleOwner:
		return Finalizer
	case RoleCompanion:
		return CompanionFinalizer
	case RoleObserver, RoleUnknown:
	}
	return ""
}

// finalizers returns those on the PV that this role may take off.
func (r Rules) finalizers(pv PV) []string {
	var on []string
	if pv.HasFinalizer && r.Role == RoleOwner {
		on = append(on, Finalizer)
	}
	if pv.HasCompanionFinalizer && (r.Role == RoleOwner || r.Role == RoleCompanion) {
		on = append(on, CompanionFinalizer)
	}
	return on
}

// ignores tells whether the PV is one that nothing is done for although the driver owns it.
func (r Rules) ignores(pv PV) bool { return r.IgnoreStatic && !pv.dynamic() }

// guards tells whether a finalizer that others take off the PV is a loss.
func (r Rules) guards(pv PV) bool {
	return r.finalizer() != "" && r.Mode == ModeHonor && !r.ignores(pv) && pv.Policy == PolicyDelete && pv.claimed()
}

// due tells whether the PV is one whose volume this process is to delete, as far as the PV
// itself shows. It is what the brake counts.
func (r Rules) due(pv PV) bool {
	return pv.deletable() && !pv.Held && !r.ignores(pv) && r.Mode != ModeRelease &&
		(r.Role == RoleOwner || (r.Role == RoleCompanion && pv.Terminating))
}
