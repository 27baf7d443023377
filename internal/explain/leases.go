package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
)

// VolumeGuard is the name of volume-guard, and of its Lease for leader election.
const VolumeGuard = "volume-guard"

func (w ClusterFacts) leads(driver string) bool {
	return slices.ContainsFunc(w.leasesOf(driver), func(l coordinationv1.Lease) bool { return IsHeld(l, w.Now) })
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
	held := slices.DeleteFunc(w.leasesOf(driver), func(l coordinationv1.Lease) bool { return !IsHeld(l, w.Now) })
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
		pods[l.Namespace+"/"+HolderOf(l)] = true
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
		held = append(held, fmt.Sprintf("%s/%s (by %s)", l.Namespace, l.Name, HolderOf(l)))
	}
	return fmt.Sprintf("It is not known which pod leads for %s: it has held Leases in several namespaces, %s. Delete the "+
		"Lease that is not of its sidecar, or stop all but one of its Deployments", driver, strings.Join(held, " and "))
}

// onNodes returns the held Leases that have the label of the driver, and no name that the whole cluster shares: each
// is of a csi-reclaimer that runs for one node (--node-deployment).
func (f StatusFacts) onNodes(driver string) []coordinationv1.Lease {
	return slices.DeleteFunc(slices.Clone(f.Sidecars.Value), func(l coordinationv1.Lease) bool {
		return !IsHeld(l, f.Now) || slices.Contains(leaseNames(driver), l.Name)
	})
}

// IsHeld reports whether the Lease has a holder whose last renewal is no older than leaseDurationSeconds.
func IsHeld(l coordinationv1.Lease, now time.Time) bool {
	s := l.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	return now.Sub(s.RenewTime.Time) <= time.Duration(*s.LeaseDurationSeconds)*time.Second
}

// ReadGuards reads volume-guard's leader election Leases.
func ReadGuards(ctx context.Context, c Cluster) Read[[]coordinationv1.Lease] {
	return c.Leases(ctx, []string{VolumeGuard})
}

// Led reports whether a replica of volume-guard leads. guards are the Leases of its name.
func Led(guards []coordinationv1.Lease, now time.Time) bool { return leaderOf(guards, now) != nil }

func leaderOf(guards []coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	for i := range guards {
		if IsHeld(guards[i], now) {
			return &guards[i]
		}
	}
	return nil
}

// AddGuards reports whether volume-guard runs. guards are the Leases of its name.
func (s *Explanation) AddGuards(guards Read[[]coordinationv1.Lease], now time.Time) {
	NoteUnread(s, guards, "Leases", "whether volume-guard runs")
	switch leader := leaderOf(guards.Value, now); {
	case !guards.OK():
	case leader == nil:
		s.AddFact(VolumeGuard, "no replica holds its Lease: nothing is released")
	default:
		s.AddFact(VolumeGuard, "%s leads (Lease %s/%s)", HolderOf(*leader), leader.Namespace, leader.Name)
	}
}

// HolderOf returns the host name of a Lease's holder, which is its pod's name, or an empty string without a holder.
func HolderOf(l coordinationv1.Lease) string {
	return leadership.HostOf(ptr.Deref(l.Spec.HolderIdentity, ""))
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
