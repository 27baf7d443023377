package server_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/memory"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
