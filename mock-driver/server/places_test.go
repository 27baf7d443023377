package server_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
)

func zones(names ...string) []*csi.Topology {
	var list []*csi.Topology
	for _, name := range names {
		list = append(list, &csi.Topology{Segments: map[string]string{"zone": name}})
	}
	return list
}

// serveZones runs a driver with room for one volume of 1 GiB in zone a, and for any number in zone b.
func serveZones(t *testing.T) driver {
	t.Helper()
	return serve(t, "topology", func(c *server.Config, b *backend.Config) {
		c.Topology = map[string]string{"zone": "a"}
		b.Places = []backend.Place{{Segments: c.Topology, CapacityBytes: 1 << 30}, {Segments: map[string]string{"zone": "b"}}}
	})
}

func createAt(t *testing.T, d driver, name string, where *csi.TopologyRequirement) (zone string, err error) {
	t.Helper()
	r, err := d.controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name,
		VolumeCapabilities: []*csi.VolumeCapability{writer()},
		CapacityRange:      &csi.CapacityRange{RequiredBytes: 1 << 30}, AccessibilityRequirements: where})
	if err != nil {
		return "", err
	}
	places := r.GetVolume().GetAccessibleTopology()
	if len(places) != 1 {
		t.Fatalf("volume %s is accessible from %v, want one place", name, places)
	}
	return places[0].GetSegments()["zone"], nil
}

func TestVolumeTopology(t *testing.T) {
	for name, c := range map[string]struct {
		where *csi.TopologyRequirement
		full  bool // zone a is full
		want  string
		code  codes.Code
	}{
		"anywhere": {want: "a"},
		"the preferred place": {where: &csi.TopologyRequirement{Requisite: zones("a", "b"),
			Preferred: zones("b", "a")}, want: "b"},
		"a preferred place alone": {where: &csi.TopologyRequirement{Preferred: zones("b")}, want: "b"},
		"a requisite place alone": {where: &csi.TopologyRequirement{Requisite: zones("b")}, want: "b"},
		"the other one if that is full": {where: &csi.TopologyRequirement{Requisite: zones("a", "b"),
			Preferred: zones("a")}, full: true, want: "b"},
		"nowhere if no other one will do": {where: &csi.TopologyRequirement{Requisite: zones("a"), Preferred: zones("a")},
			full: true, code: codes.ResourceExhausted},
		"nowhere else": {where: &csi.TopologyRequirement{Requisite: zones("c")},
			code: codes.ResourceExhausted},
		"not where it must not be": {where: &csi.TopologyRequirement{Requisite: zones("b"), Preferred: zones("a")},
			code: codes.InvalidArgument}, // CSI spec, TopologyRequirement.preferred
	} {
		t.Run(name, func(t *testing.T) {
			d := serveZones(t)
			if c.full {
				if _, err := createAt(t, d, "filler", &csi.TopologyRequirement{Requisite: zones("a")}); err != nil {
					t.Fatal(err)
				}
			}
			if zone, err := createAt(t, d, "pvc-1", c.where); zone != c.want || status.Code(err) != c.code {
				t.Errorf("got zone %q, %v, want %q, %v", zone, err, c.want, c.code)
			}
		})
	}
}

func TestGetCapacityByTopology(t *testing.T) {
	d := serveZones(t)
	left := func(zone string) int64 {
		t.Helper()
		r, err := d.controller.GetCapacity(t.Context(), &csi.GetCapacityRequest{AccessibleTopology: zones(zone)[0]})
		check(t, err)
		return r.GetAvailableCapacity()
	}
	if got := left("a"); got != 1<<30 {
		t.Errorf("zone a: %d bytes left, want all of its own", got)
	}
	if got := left("b"); got != 1<<50 {
		t.Errorf("zone b: %d bytes left, want all that the driver has", got)
	}
	if got := left("c"); got != 0 {
		t.Errorf("zone c, which there is not: %d bytes left", got)
	}
	_, err := createAt(t, d, "pvc-1", nil)
	check(t, err)
	if got := left("a"); got != 0 {
		t.Errorf("zone a: %d bytes left after a volume of its size", got)
	}
}

func TestFaultByPlace(t *testing.T) {
	d := serveZones(t)
	check(t, d.faults.Set(faults.Plan{Rules: []faults.Rule{
		{Name: "no-b", Method: "CreateVolume", Place: "zone=b", Action: faults.Fail, Code: "ResourceExhausted"}}}))
	if _, err := createAt(t, d, "pvc-1", &csi.TopologyRequirement{Requisite: zones("a", "b"),
		Preferred: zones("b")}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("preferred there: got %v", err)
	}
	if zone, err := createAt(t, d, "pvc-1", &csi.TopologyRequirement{Requisite: zones("a", "b")}); err != nil ||
		zone != "a" {
		t.Errorf("elsewhere: got zone %q, %v", zone, err)
	}
	if calls := d.calls(t, "CreateVolume", 2); len(calls[0].Faults) != 1 || len(calls[1].Faults) != 0 {
		t.Errorf("ledger: got %+v", calls)
	}
}

func TestKnownParameters(t *testing.T) {
	d := serve(t, "full", func(c *server.Config, _ *backend.Config) { c.Parameters = []string{"type", "encrypted"} })
	for name, c := range map[string]struct {
		parameters map[string]string
		want       codes.Code
	}{
		"none":  {},
		"known": {parameters: map[string]string{"type": "ssd"}},
		"unknown": {parameters: map[string]string{"type": "ssd", "tpye": "ssd"},
			want: codes.InvalidArgument},
		"for the sidecar": {parameters: map[string]string{"csi.storage.k8s.io/fstype": "xfs"},
			want: codes.InvalidArgument},
		"one of another spelling of its": {parameters: map[string]string{"Type": "ssd"}, want: codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
				Name: name, VolumeCapabilities: []*csi.VolumeCapability{writer()}, Parameters: c.parameters})
			if status.Code(err) != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// A clone or restore is recognized by the answer, which has to repeat the source.
func TestContentSourceInAnswer(t *testing.T) {
	d := serve(t, "full", nil)
	volume := d.create(t, "pvc-1")
	taken, err := d.controller.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snap-1",
		SourceVolumeId: volume})
	check(t, err)
	snapshot := taken.GetSnapshot().GetSnapshotId()
	for name, source := range map[string]*csi.VolumeContentSource{
		"clone": {Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: volume}}},
		"restore": {Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}}},
	} {
		for _, again := range []string{"", " again"} {
			r, err := d.controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
				Name: name, VolumeCapabilities: []*csi.VolumeCapability{writer()}, VolumeContentSource: source})
			check(t, err)
			got := r.GetVolume().GetContentSource()
			if got.GetVolume().GetVolumeId() != source.GetVolume().GetVolumeId() ||
				got.GetSnapshot().GetSnapshotId() != source.GetSnapshot().GetSnapshotId() {
				t.Errorf("%s%s: got %v, want %v", name, again, got, source)
			}
		}
	}
}
