package server_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/memory"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/socket"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

// driver is a driver in this process, behind a real socket.
type driver struct {
	controller csi.ControllerClient
	node       csi.NodeClient
	identity   csi.IdentityClient
	faults     *faults.Engine
	ledger     string
	stop       func()
}

// serve runs a driver of a profile until the test ends.
func serve(t *testing.T, profile string, change func(*server.Config, *backend.Config)) driver {
	t.Helper()
	p, err := server.FindProfile(profile)
	check(t, err)
	config := server.Config{Name: "mock.example.com", Version: "1", NodeID: "n1", Capabilities: p.Capabilities,
		Grace: 10 * time.Second}
	limits := backend.Config{Nodes: []string{"n1", "n2"}}
	if change != nil {
		change(&config, &limits)
	}
	b, err := backend.New(memory.Store[backend.Volume]{}, memory.Store[backend.Snapshot]{}, limits)
	check(t, err)
	engine, err := faults.New(faults.Config{FirstPage: server.FirstPageToken()})
	check(t, err)
	dir, err := os.MkdirTemp("", "csi-")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := driver{faults: engine, ledger: filepath.Join(dir, "ledger.jsonl")}
	writer, err := ledger.Open(d.ledger, "test", time.Now)
	check(t, err)
	s, err := server.New(b, engine, writer, slog.New(slog.DiscardHandler), config)
	check(t, err)
	path := filepath.Join(dir, "csi.sock")
	l, err := socket.Listen(t.Context(), path)
	check(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, l) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	d.controller, d.node, d.identity = csi.NewControllerClient(conn), csi.NewNodeClient(conn), csi.NewIdentityClient(conn)
	d.stop = cancel
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		_ = conn.Close()
		if err := writer.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mount(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
}

func writer() *csi.VolumeCapability { return mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER) }

// wantCode reports a call that did not end with the code.
func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func (d driver) setFaults(t *testing.T, rules ...faults.Rule) {
	t.Helper()
	check(t, d.faults.Set(faults.Plan{Rules: rules}))
}

// deleted returns the error of a DeleteVolume call.
func (d driver) deleted(ctx context.Context, id string) error {
	_, err := d.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
	return err
}

// capacity returns the error of a GetCapacity call.
func (d driver) capacity(ctx context.Context) error {
	_, err := d.controller.GetCapacity(ctx, &csi.GetCapacityRequest{})
	return err
}

func (d driver) attach(t *testing.T, id, node string) error {
	t.Helper()
	_, err := d.controller.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id,
		NodeId: node, VolumeCapability: writer()})
	return err
}

func (d driver) create(t *testing.T, name string) string {
	t.Helper()
	r, err := d.controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name,
		VolumeCapabilities: []*csi.VolumeCapability{writer()}})
	check(t, err)
	return r.GetVolume().GetVolumeId()
}

// calls waits until the ledger has n answered calls of a method.
func (d driver) calls(t *testing.T, method string, n int) []ledger.Call {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls, err := ledger.Wait(ctx, d.ledger, func(all []ledger.Call) bool {
		answered := 0
		for _, c := range ledger.Select(all, method) {
			if !c.Answered.IsZero() {
				answered++
			}
		}
		return answered == n
	})
	check(t, err)
	return ledger.Select(calls, method)
}

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
		_, err = csi.NewControllerClient(conn).ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		wantCode(t, "the controller service of a kubelet's socket", err, codes.Unimplemented)
		volume := d.create(t, "v-"+id)
		block := writer()
		block.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
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
