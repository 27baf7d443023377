package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
)

// The test acts as a kubelet, without mounts.
func TestKubeletRegistration(t *testing.T) {
	dir, err := os.MkdirTemp("", "k-")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := serve(t, "no-attach", func(c *server.Config, _ *backend.Config) {
		c.VolumesDir, c.SnapshotsDir = filepath.Join(dir, "volumes"), filepath.Join(dir, "snapshots")
		c.Kubelets = []server.Kubelet{{NodeID: "a", RootDir: filepath.Join(dir, "a")}, {NodeID: "b",
			RootDir: filepath.Join(dir, "b")}}
	})
	dial := func(path string) *grpc.ClientConn {
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		check(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	for _, id := range []string{"a", "b"} {
		registrar := registration.NewRegistrationClient(dial(filepath.Join(dir, id, "plugins_registry",
			"mock.example.com-reg.sock")))
		// Run creates the kubelets' sockets, so the first call may have to wait.
		plugin, err := registrar.GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true))
		check(t, err)
		if plugin.GetType() != registration.CSIPlugin || plugin.GetName() != "mock.example.com" {
			t.Errorf("plugin %+v", plugin)
		}
		_, err = registrar.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: true})
		check(t, err)
		conn := dial(plugin.GetEndpoint())
		info, err := csi.NewNodeClient(conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
		check(t, err)
		if info.GetNodeId() != id {
			t.Errorf("node %q, want %q", info.GetNodeId(), id)
		}
		if _, err := csi.NewControllerClient(conn).ListVolumes(t.Context(),
			&csi.ListVolumesRequest{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("a kubelet's socket has a controller service: %v", err)
		}
		volume := d.create(t, "v-"+id)
		block := &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
		_, err = csi.NewNodeClient(conn).NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: volume,
			StagingTargetPath: dir, VolumeCapability: block})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no block volumes") {
			t.Errorf("a block volume: %v", err)
		}
	}
	for i, call := range d.calls(t, "NodeStageVolume", 2) {
		if want := []string{"a", "b"}[i]; call.Node != want || call.Path != dir {
			t.Errorf("call on node %q at %q, want %q", call.Node, call.Path, want)
		}
	}
}
