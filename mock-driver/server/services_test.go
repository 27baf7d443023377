package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
)

func TestCreateVolumeRefusals(t *testing.T) {
	full := serve(t, "full", func(_ *server.Config, b *backend.Config) {
		b.CapacityBytes, b.MaxVolumeBytes = 10<<30, 20<<30
	})
	minimal := serve(t, "minimal", nil)
	snapshot := func(id string) *csi.VolumeContentSource {
		return &csi.VolumeContentSource{
			Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}},
		}
	}
	sized := func(bytes int64) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{RequiredBytes: bytes} }
	}
	mutable := func(key, value string) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{key: value} }
	}
	from := func(source *csi.VolumeContentSource) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = source }
	}
	for name, c := range map[string]struct {
		driver driver
		change func(*csi.CreateVolumeRequest)
		want   codes.Code
	}{
		"no name": {full, func(r *csi.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument},
		"a name of 129 bytes": {full, func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("x", 129) },
			codes.InvalidArgument},
		"a control character":        {full, func(r *csi.CreateVolumeRequest) { r.Name = "a\x07b" }, codes.InvalidArgument},
		"a path as a name is a name": {full, func(r *csi.CreateVolumeRequest) { r.Name = "../../etc" }, codes.OK},
		"no capabilities": {full, func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil },
			codes.InvalidArgument},
		"a capability without a mode": {full,
			func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode = nil }, codes.InvalidArgument},
		"a capability without a type": {full,
			func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessType = nil }, codes.InvalidArgument},
		"too many parameters": {full,
			func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"a": strings.Repeat("x", 5000)} },
			codes.InvalidArgument},
		"a negative size":               {full, sized(-1), codes.InvalidArgument},
		"more than there is":            {full, sized(11 << 30), codes.ResourceExhausted},
		"more than a volume can have":   {full, sized(21 << 30), codes.OutOfRange},
		"an unknown mutable parameter":  {full, mutable("x", "y"), codes.InvalidArgument},
		"a mutable number that is none": {full, mutable("iops", "many"), codes.InvalidArgument},
		"an unknown source":             {full, from(snapshot("x")), codes.NotFound},
		"a source without an id":        {full, from(snapshot("")), codes.InvalidArgument},
		"a source of no type":           {full, from(&csi.VolumeContentSource{}), codes.InvalidArgument},
		"a place, without topology": {full,
			func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements = &csi.TopologyRequirement{} },
			codes.InvalidArgument},
		"a source, without snapshots":               {minimal, from(snapshot("x")), codes.InvalidArgument},
		"mutable parameters, without MODIFY_VOLUME": {minimal, mutable("tier", "gold"), codes.InvalidArgument},
		"a mode, without SINGLE_NODE_MULTI_WRITER": {minimal, func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			r := &csi.CreateVolumeRequest{Name: "pvc-1", VolumeCapabilities: []*csi.VolumeCapability{writer()}}
			c.change(r)
			_, err := c.driver.controller.CreateVolume(t.Context(), r)
			wantCode(t, name, err, c.want)
		})
	}
}

func TestDeleteVolumeWithUnknownIDs(t *testing.T) {
	d := serve(t, "full", nil)
	kept := d.create(t, "pvc-1")
	for _, id := range []string{"..", "../volumes", "/", "a/b", kept + "/../" + kept, strings.Repeat("x", 10000), "*",
		" " + kept, "漢字"} {
		wantCode(t, fmt.Sprintf("%.20q", id), d.deleted(t.Context(), id), codes.OK)
	}
	_, err := d.controller.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: kept})
	wantCode(t, "the other volume", err, codes.OK)
}

func TestDeletePublishedVolume(t *testing.T) {
	for deleteUsed, want := range map[bool]codes.Code{false: codes.FailedPrecondition, true: codes.OK} {
		t.Run(fmt.Sprintf("DeleteUsed %t", deleteUsed), func(t *testing.T) {
			d := serve(t, "full", func(_ *server.Config, b *backend.Config) { b.DeleteUsed = deleteUsed })
			id := d.create(t, "pvc-1")
			check(t, d.attach(t, id, "n2"))
			list, err := d.controller.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
			if err != nil || !slices.Equal(list.GetEntries()[0].GetStatus().GetPublishedNodeIds(), []string{"n2"}) {
				t.Errorf("list: got %v, %v", list, err)
			}
			wantCode(t, "delete", d.deleted(t.Context(), id), want)
		})
	}
}

func TestNodeSteps(t *testing.T) {
	d := serve(t, "full", nil)
	dir := t.TempDir()
	staging, target := filepath.Join(dir, "staging"), filepath.Join(dir, "target")
	check(t, os.Mkdir(staging, 0o755))
	id := d.create(t, "pvc-1")
	stage := func() error {
		_, err := d.node.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: staging,
			VolumeCapability: writer()})
		return err
	}
	publish := func(stagedAt, at string) error {
		_, err := d.node.NodePublishVolume(t.Context(),
			&csi.NodePublishVolumeRequest{VolumeId: id, StagingTargetPath: stagedAt, TargetPath: at, VolumeCapability: writer()})
		return err
	}
	unpublish := func() error {
		_, err := d.node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
		want codes.Code
	}{
		{"stage before attach", stage, codes.FailedPrecondition},
		{"attach", func() error { return d.attach(t, id, "n1") }, codes.OK},
		{"publish before stage", func() error { return publish(staging, target) }, codes.FailedPrecondition},
		{"stage", stage, codes.OK},
		{"publish without staging path", func() error { return publish("", target) }, codes.FailedPrecondition},
		{"publish at a relative path", func() error { return publish(staging, "target") }, codes.InvalidArgument},
		{"publish where the parent is missing", func() error { return publish(staging, filepath.Join(dir, "a", "b")) },
			codes.Internal},
		{"publish", func() error { return publish(staging, target) }, codes.OK},
		{"put data there", func() error { return os.WriteFile(filepath.Join(target, "data"), nil, 0o600) }, codes.OK},
		{"unpublish a directory with data", unpublish, codes.Internal},
		{"take the data away", func() error { return os.Remove(filepath.Join(target, "data")) }, codes.OK},
		{"unpublish", unpublish, codes.OK},
		{"unpublish again", unpublish, codes.OK},
	} {
		wantCode(t, step.name, step.do(), step.want)
	}
	if _, err := os.Lstat(target); !os.IsNotExist(err) {
		t.Errorf("target path afterwards: %v", err)
	}
}

func TestHealth(t *testing.T) {
	d := serve(t, "full", nil)
	id := d.create(t, "pvc-1")
	d.create(t, "pvc-2")
	for health, want := range map[string]int{"degraded": 1, "healthy": 0} {
		_, err := d.controller.ControllerModifyVolume(t.Context(),
			&csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"health": health}})
		check(t, err)
		list, err := d.controller.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
		if err != nil || len(list.GetEntries()) != want {
			t.Errorf("%s: got %v, %v", health, list.GetEntries(), err)
		}
		got, err := d.controller.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
		if err != nil || len(got.GetVolumeHealth().GetHealthStatuses()) != want {
			t.Errorf("%s: got %v, %v", health, got, err)
		}
	}
}

// Before v1.13, a driver with VOLUME_CONDITION set field 2 of the status, and clients of that time still read it.
func TestLegacyVolumeCondition(t *testing.T) {
	for profile, want := range map[string]bool{"legacy": true, "full": false} {
		d := serve(t, profile, nil)
		d.create(t, "pvc-1")
		list, err := d.controller.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		check(t, err)
		unknown := string(list.GetEntries()[0].GetStatus().ProtoReflect().GetUnknown())
		if got := strings.Contains(unknown, "volume is healthy"); got != want {
			t.Errorf("profile %s: got %q", profile, unknown)
		}
	}
}

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
		requisite, preferred []*csi.Topology
		full                 bool // zone a is full
		want                 string
		code                 codes.Code
	}{
		"anywhere":                      {want: "a"},
		"the preferred place":           {requisite: zones("a", "b"), preferred: zones("b", "a"), want: "b"},
		"a preferred place alone":       {preferred: zones("b"), want: "b"},
		"a requisite place alone":       {requisite: zones("b"), want: "b"},
		"the other one if that is full": {requisite: zones("a", "b"), preferred: zones("a"), full: true, want: "b"},
		"nowhere if no other one will do": {requisite: zones("a"), preferred: zones("a"), full: true,
			code: codes.ResourceExhausted},
		"nowhere else": {requisite: zones("c"), code: codes.ResourceExhausted},
		// CSI spec, TopologyRequirement.preferred
		"not where it must not be": {requisite: zones("b"), preferred: zones("a"), code: codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			d := serveZones(t)
			if c.full {
				if _, err := createAt(t, d, "filler", &csi.TopologyRequirement{Requisite: zones("a")}); err != nil {
					t.Fatal(err)
				}
			}
			var where *csi.TopologyRequirement
			if c.requisite != nil || c.preferred != nil {
				where = &csi.TopologyRequirement{Requisite: c.requisite, Preferred: c.preferred}
			}
			if zone, err := createAt(t, d, "pvc-1", where); zone != c.want || status.Code(err) != c.code {
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
	// Zone a has its own limit, zone b that of the driver, and zone c does not exist.
	for zone, want := range map[string]int64{"a": 1 << 30, "b": 1 << 50, "c": 0} {
		if got := left(zone); got != want {
			t.Errorf("zone %s: %d bytes left, want %d", zone, got, want)
		}
	}
	_, err := createAt(t, d, "pvc-1", nil)
	check(t, err)
	if got := left("a"); got != 0 {
		t.Errorf("zone a: %d bytes left after a volume of its size", got)
	}
}

func TestFaultByPlace(t *testing.T) {
	d := serveZones(t)
	d.setFaults(t, faults.Rule{Name: "no-b", Method: "CreateVolume", Place: "zone=b", Action: faults.Fail,
		Code: "ResourceExhausted"})
	_, err := createAt(t, d, "pvc-1", &csi.TopologyRequirement{Requisite: zones("a", "b"), Preferred: zones("b")})
	wantCode(t, "preferred there", err, codes.ResourceExhausted)
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
			wantCode(t, name, err, c.want)
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
