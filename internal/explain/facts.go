package explain

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Read is the result of one read of the API server. The zero value: none was made.
type Read[T any] struct {
	Made  bool
	Value T
	// Err is why the read failed; Value then says nothing.
	Err error
}

// OK reports whether Value is what the API server had.
func (r Read[T]) OK() bool { return r.Made && r.Err == nil }

// Found returns the result of a read that succeeded.
func Found[T any](value T) Read[T] { return Read[T]{Made: true, Value: value} }

// Failed returns the result of a read that failed.
func Failed[T any](err error) Read[T] { return Read[T]{Made: true, Err: err} }

// PV is what is kept of each PV of a cluster.
type PV struct {
	volume.PV
	// Tree is what matters of an in-tree volume, nil for others.
	Tree *intree.PV
}

// PVOf reads what is needed of a PersistentVolume, without keeping a reference to it.
func PVOf(o *v1.PersistentVolume) PV {
	pv := PV{PV: volume.Of(o)}
	if pv.InTree {
		tree := intree.Of(o)
		pv.Tree = &tree
	}
	return pv
}

// ClusterFacts is what was read of a cluster around its PVs. The zero value of each field is not known.
type ClusterFacts struct {
	// Now is when the reads were made.
	Now time.Time
	// Role is the one that decides. RoleUnknown: it is guessed for each driver, see RoleOf.
	Role volume.Role

	PVs         Read[[]PV]
	Attachments Read[[]storagev1.VolumeAttachment]
	// Installed are the names of the CSIDriver objects, OnNodes those of the drivers that a node runs.
	Installed, OnNodes Read[[]string]
	// Leases are those by which the sidecars of drivers, and volume-guard, elect a leader.
	Leases Read[[]coordinationv1.Lease]
	// InFlight are the in-flight logs of the cluster's provisioners.
	InFlight Read[InFlightLogs]
	// SiblingClaims are the claims of PVs that name a volume which another PV names too, by their claimRef; nil for
	// one that is gone.
	SiblingClaims map[volume.ClaimRef]Read[*v1.PersistentVolumeClaim]

	by *clusterIndex
}

// RoleOf returns the role in which csi-reclaimer works beside a driver. Unless Role is set, it is a
// companion where a PV of the driver carries the companion's finalizer, and an owner elsewhere.
func (w ClusterFacts) RoleOf(driver string) (role volume.Role, guessed bool) {
	if w.Role != volume.RoleUnknown {
		return w.Role, false
	}
	if w.by.companions[driver] {
		return volume.RoleCompanion, true
	}
	return volume.RoleOwner, true
}

// presence reports whether a driver is there.
type presence uint8

const (
	presenceUnknown presence = iota
	presenceInstalled
	presenceGone
)

// presenceOf reports whether a driver is there: it has a CSIDriver object, a node runs it, or its sidecar
// leads. Gone means that none of them is so.
func (w ClusterFacts) presenceOf(driver string) presence {
	switch {
	case slices.Contains(w.Installed.Value, driver), slices.Contains(w.OnNodes.Value, driver), w.leads(driver):
		return presenceInstalled
	case !w.Installed.OK() || !w.OnNodes.OK() || !w.Leases.OK():
		return presenceUnknown
	}
	return presenceGone
}

// leads reports whether a process holds a Lease of the driver.
func (w ClusterFacts) leads(driver string) bool {
	return slices.ContainsFunc(w.leasesOf(driver), func(l coordinationv1.Lease) bool { return IsHeld(l, w.Now) })
}

// leasesOf returns the Leases of the driver that were found, in all namespaces.
func (w ClusterFacts) leasesOf(driver string) (leases []coordinationv1.Lease) {
	for _, lease := range w.Leases.Value {
		if slices.Contains(leaseNames(driver), lease.Name) {
			leases = append(leases, lease)
		}
	}
	return leases
}

// IsHeld reports whether the Lease has a holder that renews it.
func IsHeld(l coordinationv1.Lease, now time.Time) bool {
	s := l.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	return now.Sub(s.RenewTime.Time) <= time.Duration(*s.LeaseDurationSeconds)*time.Second
}

// HolderOf returns the host name of a Lease's holder, which is the name of its pod, empty for none.
func HolderOf(l coordinationv1.Lease) string {
	return leadership.HostOf(ptr.Deref(l.Spec.HolderIdentity, ""))
}

// leaseNames returns the names that the Lease of a driver's sidecar can have: the one that owner and
// external-provisioner compete for, and that of the other roles.
func leaseNames(driver string) []string {
	name := strings.ToLower(sanitized(driver))
	return []string{name, name + "-reclaimer"}
}

// sanitized turns a driver's name into one that names of objects may contain, as csi-lib-utils and
// external-attacher do (sanitizeName, sanitizeDriverName).
func sanitized(driver string) string {
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
