package objects

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// DriverLabel on a Lease for leader election names the CSI driver of the csi-reclaimer that wrote it.
const DriverLabel = "csi-reclaimer.io/driver"

// ElectionLeases returns the possible names of a driver's Leases for leader election: first the Lease for which owner
// and external-provisioner compete, then the Lease of the other roles.
func ElectionLeases(driver string) []string {
	name := strings.ToLower(SanitizedDriver(driver))
	return []string{name, name + "-reclaimer"}
}

// SanitizedDriver replaces the characters of a driver's name that object names may not contain, as csi-lib-utils
// (sanitizeName) and external-attacher (sanitizeDriverName) do.
func SanitizedDriver(driver string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, driver)
	if strings.HasSuffix(name, "-") {
		name += "X"
	}
	return name
}

// IsHeld reports whether the Lease has a holder whose last renewal is no older than leaseDurationSeconds.
func IsHeld(l coordinationv1.Lease, now time.Time) bool {
	s := l.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	return now.Sub(s.RenewTime.Time) <= time.Duration(*s.LeaseDurationSeconds)*time.Second
}
