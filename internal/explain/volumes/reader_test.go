package volumes

import (
	"context"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// leaseNames records the names of the Leases that are read of a cluster without PVs.
type leaseNames struct {
	explain.Source
	names []string
}

func (*leaseNames) PVs(context.Context) explain.Read[[]explain.PV] {
	return explain.Found([]explain.PV{})
}
func (*leaseNames) Attachments(context.Context) explain.Read[[]storagev1.VolumeAttachment] {
	return explain.Found[[]storagev1.VolumeAttachment](nil)
}
func (*leaseNames) Installed(context.Context) explain.Read[[]string] {
	return explain.Found([]string{"installed"})
}
func (*leaseNames) OnNodes(context.Context) explain.Read[[]string] {
	return explain.Found([]string{"on.node"})
}
func (s *leaseNames) Leases(_ context.Context, names []string) explain.Read[[]coordinationv1.Lease] {
	s.names = append(s.names, names...)
	return explain.Found[[]coordinationv1.Lease](nil)
}
func (*leaseNames) Sidecars(context.Context, string) explain.Read[[]coordinationv1.Lease] {
	return explain.Found[[]coordinationv1.Lease](nil)
}
func (*leaseNames) InFlight(context.Context) explain.Read[explain.InFlightLogs] {
	return explain.Found(explain.InFlightLogs{Entries: []inflight.Located{{Location: inflight.Location{Driver: "any"}}}})
}
func (*leaseNames) Admission(context.Context) (read explain.Read[admission.Coverage]) { return read }

// A driver without PVs may have a brake, volumes in flight, and a csi-reclaimer that adds finalizers again.
func TestLeasesOfDriversWithoutPVs(t *testing.T) {
	for driver, want := range map[string][]string{
		"": {"installed", "installed-reclaimer", "on-node", "on-node-reclaimer", "volume-guard"},
		"given": {"given", "given-reclaimer", "installed", "installed-reclaimer", "on-node", "on-node-reclaimer",
			"volume-guard"},
	} {
		s := &leaseNames{}
		c := explain.Cluster{Source: s, Clock: clock.RealClock{}}
		if _, err := ReadRelease(t.Context(), c, driver); err != nil || !slices.Equal(s.names, want) {
			t.Errorf("--driver=%q: the Leases %q are read, want %q: %v", driver, s.names, want, err)
		}
	}
}
