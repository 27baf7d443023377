package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// ClusterFacts holds the results of all reads around the PVs of a cluster. The zero value of each field is unknown.
type ClusterFacts struct {
	// Now is the time of the reads.
	Now time.Time
	// Role is csi-reclaimer's role. RoleUnknown makes RoleOf guess it for each driver.
	Role volume.Role
	// Minor is the API server's minor version, 0 if unknown. Only in-tree volumes need it.
	Minor int

	PVs         explain.Read[[]explain.PV]
	Attachments explain.Read[[]storagev1.VolumeAttachment]
	// Installed holds the names of all CSIDrivers, OnNodes the names of all drivers in CSINodes.
	Installed, OnNodes explain.Read[[]string]
	// Leases holds the leader election Leases of the drivers' sidecars and of volume-guard.
	Leases explain.Read[[]coordinationv1.Lease]
	// InFlight holds the in-flight logs of all provisioners in the cluster.
	InFlight explain.Read[explain.InFlightLogs]
	// SiblingClaims holds the claims of PVs that share their volume with another PV, by claimRef. The Value is nil if the
	// claim is gone.
	SiblingClaims map[volume.ClaimRef]explain.Read[*v1.PersistentVolumeClaim]

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

// CheckDriver returns an [explain.RefusalError] if nothing in the cluster names the driver. It returns nil for an empty
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
	next := "no driver is known in this cluster: kubectl get csidrivers"
	if len(known) > 0 {
		next = "name one of " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	}
	return &explain.RefusalError{Next: next,
		Cause: fmt.Sprintf("--driver=%s: no CSIDriver, node, PV or volume in flight names this driver", driver)}
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
	case !w.Installed.OK() || !w.OnNodes.OK() || !w.Leases.OK(), !explain.CSIName(driver), w.by.foreign[driver]:
		return presenceUnknown
	}
	return presenceGone
}

// clusterIndex speeds up lookups in ClusterFacts, which may hold 100,000 PVs.
type clusterIndex struct {
	attachments map[string][]storagev1.VolumeAttachment // by PV name
	volumes     map[volumeID][]explain.PV
	companions  map[string]bool // drivers with a PV that carries the companion's finalizer
	foreign     map[string]bool // provisioners with a PV that is not a CSI driver's
	named       map[string]int  // positions in ClusterFacts.PVs, by PV name
}

// volumeID is equal for PVs of one volume.
type volumeID struct {
	driver, handle string
	source         intree.Source
}

// volumesOf returns the volume that a PV names: as volume-guard identifies volumes of in-tree plugins, and as sidecars
// identify volumes, those of in-tree plugins by their translation. Either is zero if the PV names none.
func volumesOf(pv explain.PV) (inTree, csi volumeID) {
	if pv.Tree != nil {
		inTree.source = pv.Tree.Source
	}
	if pv.Handle != "" {
		csi.driver, csi.handle = pv.Driver, volume.HandleKey(pv.Handle)
	}
	return inTree, csi
}

// Indexed returns the facts with the index that AfterClaim and FindPV need, which is built only once.
func (w ClusterFacts) Indexed() ClusterFacts {
	if w.by != nil {
		return w
	}
	by := &clusterIndex{attachments: map[string][]storagev1.VolumeAttachment{}, volumes: map[volumeID][]explain.PV{},
		companions: map[string]bool{}, foreign: map[string]bool{}, named: make(map[string]int, len(w.PVs.Value))}
	for _, a := range w.Attachments.Value {
		if name := a.Spec.Source.PersistentVolumeName; name != nil {
			by.attachments[*name] = append(by.attachments[*name], a)
		}
	}
	for i, pv := range w.PVs.Value {
		by.named[pv.Name] = i
		inTree, csi := volumesOf(pv)
		for _, v := range []volumeID{inTree, csi} {
			if v != (volumeID{}) {
				by.volumes[v] = append(by.volumes[v], pv)
			}
		}
		if pv.HasCompanionFinalizer {
			by.companions[pv.Owner()] = true
		}
		if foreign(pv) {
			by.foreign[pv.Owner()] = true
		}
	}
	w.by = by
	return w
}

func (w ClusterFacts) attachmentsOf(pv string) []storagev1.VolumeAttachment {
	return w.by.attachments[pv]
}

// SiblingsOf returns the other PVs of a PV's volume, as the program that decides on the PV finds them. The facts must
// be indexed.
func (w ClusterFacts) SiblingsOf(pv explain.PV) []explain.PV {
	inTree, v := volumesOf(pv)
	if owner := pv.Owner(); pv.Tree != nil && (owner == "" || explain.InTree(owner)) {
		v = inTree
	}
	return explain.Filter(w.by.volumes[v], func(other explain.PV) bool { return other.UID != pv.UID })
}

// detached returns the index without any VolumeAttachment.
func (i *clusterIndex) detached() *clusterIndex {
	return &clusterIndex{volumes: i.volumes, companions: i.companions, named: i.named}
}

// GuardRuns reports whether a replica of volume-guard holds its Lease. known is false if the Leases were not read.
func (w ClusterFacts) GuardRuns() (runs, known bool) {
	return w.leads(explain.VolumeGuard), w.Leases.OK()
}

// FindPV returns a PV of the list. known is false if the list lacks it or was not read. The facts must be indexed.
func (w ClusterFacts) FindPV(name string) (pv explain.PV, known bool) {
	at, found := w.by.named[name]
	if !w.PVs.OK() || !found {
		return explain.PV{}, false
	}
	return w.PVs.Value[at], true
}

func (w ClusterFacts) leads(driver string) bool { return len(w.heldOf(driver)) > 0 }

// leasesOf returns the driver's Leases in all namespaces.
func (w ClusterFacts) leasesOf(driver string) []coordinationv1.Lease {
	return explain.Filter(w.Leases.Value, func(l coordinationv1.Lease) bool {
		return slices.Contains(objects.ElectionLeases(driver), l.Name)
	})
}

// heldOf returns the driver's Leases that are held.
func (w ClusterFacts) heldOf(driver string) []coordinationv1.Lease {
	return slices.DeleteFunc(w.leasesOf(driver), func(l coordinationv1.Lease) bool { return !objects.IsHeld(l, w.Now) })
}

// obeysHolds reports whether csi-reclaimer is seen to run as the driver's provisioner. An external-provisioner ignores
// holds. Its identity is only a host name, and a Lease that it took over may have kept the label.
func (w ClusterFacts) obeysHolds(driver string) bool {
	return w.InFlight.Value.OnNodes[driver] || slices.ContainsFunc(w.heldOf(driver), func(l coordinationv1.Lease) bool {
		return l.Name == objects.ElectionLeases(driver)[0] && l.Labels[objects.DriverLabel] == driver &&
			*l.Spec.HolderIdentity != explain.HolderOf(l)
	})
}

// leadersOf returns the held Leases of a driver's leader. Several mean that it is not known which leads: Leases of one
// name are held in several namespaces. A Lease with the label of csi-reclaimer takes precedence over others. In one
// namespace, the Lease of the roles beside a provisioner does, because the provisioner holds the other one.
func (w ClusterFacts) leadersOf(driver string) []coordinationv1.Lease {
	held := w.heldOf(driver)
	labeled := func(l coordinationv1.Lease) bool { return l.Labels[objects.DriverLabel] == driver }
	if slices.ContainsFunc(held, labeled) {
		held = slices.DeleteFunc(held, func(l coordinationv1.Lease) bool { return !labeled(l) })
	}
	beside := map[string]bool{}
	for _, l := range held {
		beside[l.Namespace] = beside[l.Namespace] || l.Name == objects.ElectionLeases(driver)[1]
	}
	return slices.DeleteFunc(held, func(l coordinationv1.Lease) bool {
		return beside[l.Namespace] && l.Name != objects.ElectionLeases(driver)[1]
	})
}

// LeadersOf returns the leading pods among a driver's sidecars as NAMESPACE/NAME, sorted. Several mean that it is not
// known which of them leads.
func (w ClusterFacts) LeadersOf(driver string) []string { return podsOf(w.leadersOf(driver)) }

// podsOf returns the pods that hold these Leases.
func podsOf(held []coordinationv1.Lease) []string {
	pods := map[string]bool{}
	for _, l := range held {
		pods[l.Namespace+"/"+explain.HolderOf(l)] = true
	}
	return slices.Sorted(maps.Keys(pods))
}

// contested returns a warning if it is not known which pod leads for a driver, empty otherwise.
func (w ClusterFacts) contested(driver string) string {
	leaders := w.leadersOf(driver)
	if len(leaders) < 2 {
		return ""
	}
	held := make([]string, 0, len(leaders))
	for _, l := range leaders {
		held = append(held, fmt.Sprintf("%s/%s (by %s)", l.Namespace, l.Name, explain.HolderOf(l)))
	}
	return explain.Sentence("It is not known which pod leads for %s: it has held Leases in several namespaces, %s. "+
		"Delete the Lease that is not of its sidecar, or stop all but one of its Deployments", driver,
		strings.Join(held, " and "))
}

// onNodes returns the held Leases that have the label of the driver, and no name that the whole cluster shares: each
// is of a csi-reclaimer that runs for one node (--node-deployment).
func (f StatusFacts) onNodes(driver string) []coordinationv1.Lease {
	return explain.Filter(f.Sidecars.Value, func(l coordinationv1.Lease) bool {
		return objects.IsHeld(l, f.Now) && !slices.Contains(objects.ElectionLeases(driver), l.Name)
	})
}

// releaseBrakeCommand returns the command that releases a driver's brake, empty if no brake is known to be on. The
// facts must be indexed.
func (w ClusterFacts) releaseBrakeCommand(driver string) explain.Command {
	if on, _ := w.brakesOf(driver); len(on) > 0 {
		return explain.Command(fmt.Sprintf("kubectl annotate lease -n %s %s %s-", on[0].Namespace, on[0].Name,
			reclaim.BrakeAnnotation))
	}
	return ""
}

// brakesOf returns the driver's Leases with the brake's annotation. The Leases in on stop csi-reclaimer. It does not
// read the Leases in idle, because they are not of its role. A held Lease shows the namespace.
func (w ClusterFacts) brakesOf(driver string) (on, idle []coordinationv1.Lease) {
	name, leases := w.brakeLease(driver), w.leasesOf(driver)
	leaders := w.leadersOf(driver)
	reads := func(l coordinationv1.Lease) bool {
		return l.Name == name && slices.ContainsFunc(leaders, func(leads coordinationv1.Lease) bool {
			return l.Namespace == leads.Namespace && l.Name == leads.Name
		})
	}
	led := slices.ContainsFunc(leases, reads)
	for _, lease := range leases {
		_, annotated := lease.Annotations[reclaim.BrakeAnnotation]
		switch {
		case !annotated:
		case reads(lease), lease.Name == name && !led:
			on = append(on, lease)
		default:
			idle = append(idle, lease)
		}
	}
	return on, idle
}

// brakeLease returns the name of the Lease from which csi-reclaimer reads the brake. If the role is guessed, a leader
// beside a provisioner shows it better than finalizers do.
func (w ClusterFacts) brakeLease(driver string) string {
	names := objects.ElectionLeases(driver)
	role, guessed := w.RoleOf(driver)
	beside := func(l coordinationv1.Lease) bool { return l.Name == names[1] }
	if role != volume.RoleOwner || guessed && slices.ContainsFunc(w.heldOf(driver), beside) {
		return names[1]
	}
	return names[0]
}

// idleBrakes returns a warning for each of the driver's Leases whose annotation stops no deletion.
func (w ClusterFacts) idleBrakes(driver string) (warnings []string) {
	more := ""
	if _, guessed := w.RoleOf(driver); guessed {
		more = " Its role is guessed; set it with --role."
	}
	_, idle := w.brakesOf(driver)
	for _, lease := range idle {
		warnings = append(warnings, explain.Sentence("The brake's annotation on Lease %s/%s has no effect: csi-reclaimer "+
			"beside %s reads Lease %s in its own namespace.%s", lease.Namespace, lease.Name, driver, w.brakeLease(driver), more))
	}
	return warnings
}
