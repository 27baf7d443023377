package volume

// Role says what else works on the driver's PVs. The zero value is not known, in which
// nothing is done.
type Role uint8

const (
	// RoleUnknown does nothing.
	RoleUnknown Role = iota
	// RoleOwner: no other program deletes this driver's volumes or adds finalizers to its PVs.
	RoleOwner
	// RoleCompanion: an external-provisioner that does not honor the policy of PVs which
	// are deleted before their claim works beside (4.x and older, or with the feature gate
	// HonorPVReclaimPolicy off). It deletes the others.
	RoleCompanion
	// RoleObserver: an external-provisioner that honors the policy works beside (5.0 and
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
