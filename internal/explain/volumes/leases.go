package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func (w ClusterFacts) leads(driver string) bool {
	return slices.ContainsFunc(w.leasesOf(driver), func(l coordinationv1.Lease) bool { return explain.IsHeld(l, w.Now) })
}

// leasesOf returns the driver's Leases in all namespaces.
func (w ClusterFacts) leasesOf(driver string) (leases []coordinationv1.Lease) {
	for _, lease := range w.Leases.Value {
		if slices.Contains(leaseNames(driver), lease.Name) {
			leases = append(leases, lease)
		}
	}
	return leases
}

// leadersOf returns the held Leases of a driver's leader. Several mean that it is not known which leads: Leases of one
// name are held in several namespaces. A Lease with the label of csi-reclaimer takes precedence over others. In one
// namespace, the Lease of the roles beside a provisioner does, because the provisioner holds the other one.
func (w ClusterFacts) leadersOf(driver string) []coordinationv1.Lease {
	held := slices.DeleteFunc(w.leasesOf(driver), func(l coordinationv1.Lease) bool { return !explain.IsHeld(l, w.Now) })
	labeled := func(l coordinationv1.Lease) bool { return l.Labels[objects.DriverLabel] == driver }
	if slices.ContainsFunc(held, labeled) {
		held = slices.DeleteFunc(held, func(l coordinationv1.Lease) bool { return !labeled(l) })
	}
	beside := map[string]bool{}
	for _, l := range held {
		beside[l.Namespace] = beside[l.Namespace] || l.Name == leaseNames(driver)[1]
	}
	return slices.DeleteFunc(held, func(l coordinationv1.Lease) bool {
		return beside[l.Namespace] && l.Name != leaseNames(driver)[1]
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
	return fmt.Sprintf("It is not known which pod leads for %s: it has held Leases in several namespaces, %s. Delete the "+
		"Lease that is not of its sidecar, or stop all but one of its Deployments", driver, strings.Join(held, " and "))
}

// onNodes returns the held Leases that have the label of the driver, and no name that the whole cluster shares: each
// is of a csi-reclaimer that runs for one node (--node-deployment).
func (f StatusFacts) onNodes(driver string) []coordinationv1.Lease {
	return slices.DeleteFunc(slices.Clone(f.Sidecars.Value), func(l coordinationv1.Lease) bool {
		return !explain.IsHeld(l, f.Now) || slices.Contains(leaseNames(driver), l.Name)
	})
}

// leaseNames returns the possible names of a driver's Leases: first the Lease for which owner and external-provisioner
// compete, then the Lease of the other roles.
func leaseNames(driver string) []string {
	name := strings.ToLower(sanitized(driver))
	return []string{name, name + "-reclaimer"}
}

// sanitized replaces the characters of a driver's name that object names may not contain, as csi-lib-utils
// (sanitizeName) and external-attacher (sanitizeDriverName) do.
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

// releaseBrakeCommand returns the command that releases a driver's brake, empty if no brake is known to be on. The
// facts must be indexed.
func (w ClusterFacts) releaseBrakeCommand(driver string) (command string) {
	if on, _ := w.brakesOf(driver); len(on) > 0 {
		return fmt.Sprintf("kubectl annotate lease -n %s %s %s-", on[0].Namespace, on[0].Name, reclaim.BrakeAnnotation)
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
	names := leaseNames(driver)
	role, guessed := w.RoleOf(driver)
	beside := func(l coordinationv1.Lease) bool { return l.Name == names[1] && explain.IsHeld(l, w.Now) }
	if role != volume.RoleOwner || guessed && slices.ContainsFunc(w.leasesOf(driver), beside) {
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
		warnings = append(warnings, fmt.Sprintf("The brake's annotation on Lease %s/%s has no effect: csi-reclaimer beside "+
			"%s reads Lease %s in its own namespace.%s", lease.Namespace, lease.Name, driver, w.brakeLease(driver), more))
	}
	return warnings
}
