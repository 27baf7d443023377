package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Read is the result of one read of the API server. The zero value means that no read was made.
type Read[T any] struct {
	Made  bool
	Value T
	// Err is the reason for a failed read; Value is then meaningless.
	Err error
}

// OK reports whether the read succeeded, so that Value is the API server's answer.
func (r Read[T]) OK() bool { return r.Made && r.Err == nil }

func Found[T any](value T) Read[T] { return Read[T]{Made: true, Value: value} }

func Failed[T any](err error) Read[T] { return Read[T]{Made: true, Err: err} }

// ReadOf converts the answer to a request.
func ReadOf[T any](value T, err error) Read[T] { return Read[T]{Made: true, Value: value, Err: err} }

// Optional converts the answer to a GET of an object that may not exist; Value is nil if it does not.
func Optional[T any](o *T, err error) Read[*T] {
	switch {
	case apierrors.IsNotFound(err):
		return Found[*T](nil)
	case err != nil:
		return Failed[*T](err)
	}
	return Found(o)
}

// ByName returns the objects of a list by their names.
func ByName[O metav1.Object](all Read[[]O]) Read[map[string]O] {
	by := Read[map[string]O]{Made: all.Made, Value: make(map[string]O, len(all.Value)), Err: all.Err}
	for _, o := range all.Value {
		by.Value[o.GetName()] = o
	}
	return by
}

// PV holds the fields of a PersistentVolume that explanations need.
type PV struct {
	volume.PV
	// Tree holds the fields of an in-tree volume; nil for any other volume.
	Tree *intree.PV
	// FormerPlugin is the in-tree plugin that the volume needs, if some version of Kubernetes lacks it; empty otherwise.
	FormerPlugin string
}

// PVOf converts a PersistentVolume into a value that keeps no reference to o.
func PVOf(o *v1.PersistentVolume) PV {
	pv := PV{PV: volume.Of(o), FormerPlugin: formerPlugin(o)}
	if pv.InTree {
		tree := intree.Of(o)
		pv.Tree = &tree
	}
	return pv
}

// ClusterFacts holds the results of all reads around the PVs of a cluster. The zero value of each field is unknown.
type ClusterFacts struct {
	// Now is the time of the reads.
	Now time.Time
	// Role is csi-reclaimer's role. RoleUnknown makes RoleOf guess it for each driver.
	Role volume.Role
	// Minor is the API server's minor version, 0 if unknown. Only in-tree volumes need it.
	Minor int

	PVs         Read[[]PV]
	Attachments Read[[]storagev1.VolumeAttachment]
	// Installed holds the names of all CSIDrivers, OnNodes the names of all drivers in CSINodes.
	Installed, OnNodes Read[[]string]
	// Leases holds the leader election Leases of the drivers' sidecars and of volume-guard.
	Leases Read[[]coordinationv1.Lease]
	// InFlight holds the in-flight logs of all provisioners in the cluster.
	InFlight Read[InFlightLogs]
	// SiblingClaims holds the claims of PVs that share their volume with another PV, by claimRef. The Value is nil if the
	// claim is gone.
	SiblingClaims map[volume.ClaimRef]Read[*v1.PersistentVolumeClaim]

	by *clusterIndex
}

// RoleOf returns csi-reclaimer's role beside a driver. If Role is not set, it guesses companion if a PV of the driver
// carries the companion's finalizer, and owner otherwise. The facts must be indexed.
func (w ClusterFacts) RoleOf(driver string) (role volume.Role, guessed bool) {
	if w.Role != volume.RoleUnknown {
		return w.Role, false
	}
	if w.by.companions[driver] {
		return volume.RoleCompanion, true
	}
	return volume.RoleOwner, true
}

// UnknownDriverError means that nothing in the cluster names a driver.
type UnknownDriverError struct {
	Driver string
	// Known holds the drivers that the cluster has, sorted.
	Known []string
}

func (e *UnknownDriverError) Error() string {
	return fmt.Sprintf("--driver=%s: no CSIDriver, node, PV or volume in flight names this driver", e.Driver)
}

// NextStep names the known drivers.
func (e *UnknownDriverError) NextStep() string {
	if len(e.Known) == 0 {
		return "no driver is known in this cluster: kubectl get csidrivers"
	}
	return "name one of " + strings.Join(e.Known, ", ")
}

// CheckDriver returns an UnknownDriverError if nothing in the cluster names the driver. It returns nil for an empty
// name, and if a read failed that could have named it.
func (w ClusterFacts) CheckDriver(driver string) error {
	if driver == "" || !w.PVs.OK() || !w.Installed.OK() || !w.OnNodes.OK() || !w.InFlight.OK() {
		return nil
	}
	known := map[string]bool{}
	for _, name := range slices.Concat(w.Installed.Value, w.OnNodes.Value) {
		known[name] = true
	}
	for _, pv := range w.PVs.Value {
		known[pv.Owner()] = true
	}
	for _, e := range w.InFlight.Value.Entries {
		known[e.Driver] = true
	}
	if known[driver] {
		return nil
	}
	delete(known, "")
	return &UnknownDriverError{driver, slices.Sorted(maps.Keys(known))}
}

type presence uint8

const (
	presenceUnknown presence = iota
	presenceInstalled
	presenceGone
)

// presenceOf returns presenceInstalled if the driver has a CSIDriver object, runs on a node, or has a sidecar that
// leads, and presenceGone if all three were read and none holds. That is no proof for a provisioner without CSI. The
// facts must be indexed.
func (w ClusterFacts) presenceOf(driver string) presence {
	switch {
	case slices.Contains(w.Installed.Value, driver), slices.Contains(w.OnNodes.Value, driver), w.leads(driver):
		return presenceInstalled
	case !w.Installed.OK() || !w.OnNodes.OK() || !w.Leases.OK(), !CSIName(driver), w.by.foreign[driver]:
		return presenceUnknown
	}
	return presenceGone
}
