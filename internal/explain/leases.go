package explain

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
)

// VolumeGuard is the name of volume-guard, and of its Lease for leader election.
const VolumeGuard = "volume-guard"

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
