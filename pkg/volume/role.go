package volume

// Role names the other programs that work on the driver's PVs, and does nothing in its zero value.
type Role uint8

const (
	RoleUnknown Role = iota
	// RoleOwner means that no other program deletes this driver's volumes or adds finalizers to its PVs.
	RoleOwner
	// RoleCompanion works beside an external-provisioner that does not honor the policy of PVs which are deleted before
	// their claim (4.x and older, or with the feature gate HonorPVReclaimPolicy off), and that deletes all other volumes.
	RoleCompanion
	// RoleObserver works beside an external-provisioner that honors the policy (5.0 and newer), and writes to no PV.
	// Volumes that leak nevertheless are reported, and deleted if Config.ReclaimUnprotected permits it.
	RoleObserver
)

// String returns the role as written on the command line.
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
