package server_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
)

func TestCreateVolumeRefusals(t *testing.T) {
	full := serve(t, "full", func(_ *server.Config,
		b *backend.Config) {
		b.CapacityBytes = 10 << 30
		b.MaxVolumeBytes = 20 << 30
	})
	minimal := serve(t, "minimal", nil)
	snapshot := func(id string) *csi.VolumeContentSource {
		return &csi.VolumeContentSource{
			Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}},
		}
	}
	for name, c := range map[string]struct {
		driver driver
		change func(*csi.CreateVolumeRequest)
		want   codes.Code
	}{
		"no name": {full, func(r *csi.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument},
		"a name of 129 bytes": {full, func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("x", 129) },
			codes.InvalidArgument},
		"a control character": {full, func(r *csi.CreateVolumeRequest) { r.Name = "a\x07b" },
			codes.InvalidArgument},
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
		"a negative size": {full,
			func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{RequiredBytes: -1} }, codes.InvalidArgument},
		"more than there is": {full,
			func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{RequiredBytes: 11 << 30} },
			codes.ResourceExhausted},
		"more than a volume can have": {full,
			func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{RequiredBytes: 21 << 30} },
			codes.OutOfRange},
		"an unknown mutable parameter": {full,
			func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"x": "y"} }, codes.InvalidArgument},
		"a mutable number that is none": {full,
			func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"iops": "many"} }, codes.InvalidArgument},
		"an unknown source": {full, func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = snapshot("x") },
			codes.NotFound},
		"a source without an id": {full, func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = snapshot("") },
			codes.InvalidArgument},
		"a source of no type": {full,
			func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = &csi.VolumeContentSource{} }, codes.InvalidArgument},
		"a place, without topology": {full,
			func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements = &csi.TopologyRequirement{} },
			codes.InvalidArgument},
		"a source, without snapshots": {minimal,
			func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = snapshot("x") }, codes.InvalidArgument},
		"mutable parameters, without MODIFY_VOLUME": {minimal,
			func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"tier": "gold"} }, codes.InvalidArgument},
		"a mode, without SINGLE_NODE_MULTI_WRITER": {minimal, func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			r := &csi.CreateVolumeRequest{Name: "pvc-1", VolumeCapabilities: []*csi.VolumeCapability{writer()}}
			c.change(r)
			if _, err := c.driver.controller.CreateVolume(t.Context(), r); status.Code(err) != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestDeleteVolumeWithUnknownIDs(t *testing.T) {
	d := serve(t, "full", nil)
	kept := d.create(t, "pvc-1")
	for _, id := range []string{"..", "../volumes", "/", "a/b", kept + "/../" + kept, strings.Repeat("x", 10000), "*",
		" " + kept, "漢字"} {
		if _, err := d.controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
			t.Errorf("%.20q: %v", id, err)
		}
	}
	if _, err := d.controller.ControllerGetVolume(t.Context(),
		&csi.ControllerGetVolumeRequest{VolumeId: kept}); err != nil {
		t.Errorf("the other volume: %v", err)
	}
}

func TestDeletePublishedVolume(t *testing.T) {
	for name, c := range map[string]struct {
		deleteUsed bool
		want       codes.Code
	}{"by default": {false, codes.FailedPrecondition}, "unless so configured": {true, codes.OK}} {
		t.Run(name, func(t *testing.T) {
			d := serve(t, "full", func(_ *server.Config, b *backend.Config) { b.DeleteUsed = c.deleteUsed })
			id := d.create(t, "pvc-1")
			_, err := d.controller.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id,
				NodeId: "n2", VolumeCapability: writer()})
			check(t, err)
			list, err := d.controller.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
			if err != nil || !slices.Equal(list.GetEntries()[0].GetStatus().GetPublishedNodeIds(), []string{"n2"}) {
				t.Errorf("list: got %v, %v", list, err)
			}
			if _, err := d.controller.DeleteVolume(t.Context(),
				&csi.DeleteVolumeRequest{VolumeId: id}); status.Code(err) != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
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
	attach := func() error {
		_, err := d.controller.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id,
			NodeId: "n1", VolumeCapability: writer()})
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
		want codes.Code
	}{
		{"stage before attach", stage, codes.FailedPrecondition},
		{"attach", attach, codes.OK},
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
		if err := step.do(); status.Code(err) != step.want {
			t.Errorf("%s: got %v, want %v", step.name, err, step.want)
		}
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
