package csidriver

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/metrics"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/migration"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

// fakeDriver is a driver on a real socket whose fields define its answers.
type fakeDriver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	probes     atomic.Int32
	readyAfter int32 // number of probes that get "not ready" or an error
	controller bool
	// name defaults to disk.csi.example.com. controllers are capabilities in addition to CREATE_DELETE_VOLUME.
	name        string
	controllers []csi.ControllerServiceCapability_RPC_Type
	// introduced, if set, is called for each GetPluginInfo.
	introduced func()
	// topology: the driver reports topology, and place answers NodeGetInfo.
	topology bool
	place    func() (*csi.NodeGetInfoResponse, error)

	mu sync.Mutex
	// giveUp ends the call that gets errSilent.
	giveUp    context.CancelFunc
	deleteErr error
	deleted   *csi.DeleteVolumeRequest
	metadata  metadata.MD
	createErr error
	createID  string
	created   *csi.CreateVolumeRequest
}

func (d *fakeDriver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	switch n := d.probes.Add(1); {
	case n > d.readyAfter:
		return &csi.ProbeResponse{}, nil // a missing field means ready
	case n%2 == 0:
		return nil, status.Error(codes.FailedPrecondition, "still starting")
	}
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(false)}, nil
}

func (d *fakeDriver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	if d.introduced != nil {
		d.introduced()
	}
	return &csi.GetPluginInfoResponse{Name: cmp.Or(d.name, "disk.csi.example.com")}, nil
}

func (d *fakeDriver) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	if d.topology {
		return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS}}}}}, nil
	}
	if !d.controller {
		return &csi.GetPluginCapabilitiesResponse{}, nil
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}}}}, nil
}

func (d *fakeDriver) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range append(d.controllers, csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME) {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}}})
	}
	return answer, nil
}

func (d *fakeDriver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return d.place()
}

func (d *fakeDriver) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d.mu.Lock()
	err, giveUp := d.deleteErr, d.giveUp
	d.deleted = r
	d.metadata, _ = metadata.FromIncomingContext(ctx)
	d.mu.Unlock()
	return &csi.DeleteVolumeResponse{}, answer(ctx, err, giveUp)
}

// errSilent has the driver leave a call without an answer.
var errSilent = errors.New("no answer")

// answer returns err, or gives up a call that gets no answer and returns at its end.
func answer(ctx context.Context, err error, giveUp context.CancelFunc) error {
	if !errors.Is(err, errSilent) {
		return err
	}
	giveUp()
	<-ctx.Done()
	return ctx.Err()
}

// expect forgets the requests of earlier calls, and returns the context of the next one.
func (d *fakeDriver) expect(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.giveUp, d.deleted, d.created = cancel, nil, nil
	return ctx
}

func socketPath(t testing.TB) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "csi-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "csi.sock")
}

func serve(t *testing.T, socket string, d *fakeDriver) (stop func()) {
	t.Helper()
	listener := must.Get(net.Listen("unix", socket))(t)
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	stop = func() { server.Stop(); <-done }
	t.Cleanup(stop)
	return stop
}

func connect(t *testing.T, socket string) *Driver {
	t.Helper()
	d := must.Get(Connect(t.Context(), socket, Config{Timeout: time.Minute, ProbeEvery: time.Millisecond}))(t)
	t.Cleanup(d.Close)
	return d
}

// connected returns a connection to the driver, which it serves.
func connected(t *testing.T, d *fakeDriver) *Driver {
	t.Helper()
	socket := socketPath(t)
	serve(t, socket, d)
	return connect(t, socket)
}

func TestMetricsLabelMigrated(t *testing.T) {
	socket := socketPath(t)
	serve(t, socket, &fakeDriver{controller: true})
	calls := metrics.NewCSIMetricsManagerWithOptions("a", metrics.WithProcessStartTime(false), metrics.WithMigration())
	d := must.Get(Connect(t.Context(), socket, Config{Timeout: time.Minute, Metrics: calls}))(t)
	t.Cleanup(d.Close)
	for range 2 {
		_ = d.DeleteVolume(migration.Mark(t.Context(), true), "volume", nil)
		_, _ = d.CreateVolume(migration.Mark(t.Context(), true), &csi.CreateVolumeRequest{Name: "volume"}, nil)
	}
	_ = d.DeleteVolume(migration.Mark(t.Context(), false), "volume", nil)
	_, _ = d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "volume"}, nil)
	families := must.Get(calls.GetRegistry().Gather())(t)
	got := map[string]uint64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range metric.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			got[labels["method_name"]+" "+labels["migrated"]] += metric.GetHistogram().GetSampleCount()
		}
	}
	for call, want := range map[string]uint64{"DeleteVolume true": 2, "CreateVolume true": 2, "DeleteVolume false": 1,
		"CreateVolume false": 1} {
		if n := got["/csi.v1.Controller/"+call]; n != want {
			t.Errorf("%s: %d calls, want %d: %v", call, n, want, got)
		}
	}
}

func TestConnectWaitsForReadyDriver(t *testing.T) {
	driver := &fakeDriver{readyAfter: 4, controller: true}
	d := connected(t, driver)
	if got := driver.probes.Load(); got != 5 {
		t.Errorf("the driver was probed %d times, want until it was ready, 5 times", got)
	}
	if d.Name() != "disk.csi.example.com" || !d.CanDelete() || d.Attaches() ||
		!d.Offers(csi.PluginCapability_Service_CONTROLLER_SERVICE) || d.HasTopology() {
		t.Errorf("name %q, deletes %v, attaches %v, topology %v", d.Name(), d.CanDelete(), d.Attaches(), d.HasTopology())
	}
}

func TestCanDeleteWithoutControllerService(t *testing.T) {
	if connected(t, &fakeDriver{}).CanDelete() {
		t.Error("a driver without controller service is said to delete volumes")
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, socketPath(t), Config{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Connect = %v, want the context's end", err)
	}
}

func TestDeleteVolumeErrorClass(t *testing.T) {
	driver := &fakeDriver{controller: true}
	d := connected(t, driver)
	code := func(c codes.Code) error { return status.Error(c, "because") }
	cases := map[string]struct {
		answer error
		want   errclass.Class
	}{
		"deleted":                      {nil, errclass.Done},
		"someone is at work on it":     {code(codes.Aborted), errclass.InProgress},
		"does not know it":             {code(codes.NotFound), errclass.NotFound},
		"in use":                       {code(codes.FailedPrecondition), errclass.Refused},
		"a handle it cannot have made": {code(codes.InvalidArgument), errclass.Refused},
		"cannot delete":                {code(codes.Unimplemented), errclass.Refused},
		"wrong secrets":                {code(codes.Unauthenticated), errclass.Refused},
		"not allowed":                  {code(codes.PermissionDenied), errclass.Refused},
		"broken":                       {code(codes.Internal), errclass.Uncertain},
		"away":                         {code(codes.Unavailable), errclass.Uncertain},
		"too much to do":               {code(codes.ResourceExhausted), errclass.Uncertain},
		"says nothing until the end":   {errSilent, errclass.Uncertain},
		"had too little time":          {code(codes.DeadlineExceeded), errclass.Uncertain},
		"an error without code":        {errors.New("because"), errclass.Uncertain},
		"a code of a later gRPC":       {code(codes.Code(99)), errclass.Uncertain},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := driver.expect(t)
			driver.mu.Lock()
			driver.deleteErr = c.answer
			driver.mu.Unlock()
			err := d.DeleteVolume(ctx, "vol-1", map[string]string{"key": "value"})
			if got := errclass.Of(err); got != c.want {
				t.Errorf("DeleteVolume = %v, which is %v, want %v", err, got, c.want)
			}
			driver.mu.Lock()
			request := driver.deleted
			driver.mu.Unlock()
			if request.GetVolumeId() != "vol-1" || request.GetSecrets()["key"] != "value" {
				t.Errorf("the driver got %v", request)
			}
		})
	}
}

func TestReconnect(t *testing.T) {
	socket := socketPath(t)
	stop := serve(t, socket, &fakeDriver{controller: true})
	d := connect(t, socket)
	stop()
	without, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	if err := d.DeleteVolume(without, "vol-1", nil); errclass.Of(err) != errclass.Uncertain {
		t.Errorf("DeleteVolume without a driver = %v, want an uncertain outcome", err)
	}
	serve(t, socket, &fakeDriver{controller: true})
	for d.Probe(t.Context()) != nil {
	}
	if err := d.DeleteVolume(t.Context(), "vol-1", nil); err != nil {
		t.Error(err)
	}
}

// hookedClock calls hook at the beginning of the wait for a socket.
type hookedClock struct {
	clock.RealClock
	hook func()
}

func (c hookedClock) NewTicker(d time.Duration) clock.Ticker {
	c.hook()
	return c.RealClock.NewTicker(d)
}

func TestConnectRefusesLateSymlink(t *testing.T) {
	socket := socketPath(t)
	serve(t, socket, &fakeDriver{})
	link := filepath.Join(filepath.Dir(socket), "link.sock")
	begun := sync.OnceFunc(func() {
		if err := os.Symlink(socket, link); err != nil {
			t.Error(err)
		}
	})
	d, err := Connect(t.Context(), link, Config{Clock: hookedClock{hook: begun}})
	if err == nil {
		d.Close()
	}
	if !errors.Is(err, ErrAddress) {
		t.Errorf("Connect = %v, want that a link is no address", err)
	}
}

// expired is a Lease without time left.
type expired struct{}

func (expired) Left() time.Duration { return 0 }

func TestNoCreateOrDeleteAfterLeaseExpiry(t *testing.T) {
	driver := &fakeDriver{controller: true}
	d := connected(t, driver)
	d.cfg.Lease = expired{}
	if err := d.DeleteVolume(t.Context(), "vol-1", nil); !errors.Is(err, ErrLeaseExpired) {
		t.Errorf("DeleteVolume = %v", err)
	}
	if _, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "vol-2"}, nil); !errors.Is(err,
		ErrLeaseExpired) || errclass.Of(err) != errclass.Uncertain {
		t.Errorf("CreateVolume = %v", err)
	}
	driver.mu.Lock()
	defer driver.mu.Unlock()
	if driver.deleted != nil {
		t.Errorf("the driver was asked to delete %v", driver.deleted)
	}
	if d.cfg.Lease = leftOf(time.Second); d.mayAct() != nil {
		t.Errorf("with a second left: %v", d.mayAct())
	}
}

// leftOf is a Lease with this time left.
type leftOf time.Duration

func (l leftOf) Left() time.Duration { return time.Duration(l) }

func TestErrorMessagesHideSecrets(t *testing.T) {
	secrets := map[string]string{"password": " hunter2\n", "short": "a", "empty": ""}
	if got := hide("hunter2 is a bad password", secrets); got != "*** is a bad password" {
		t.Errorf("shown: %q", got)
	}
	if plainly(nil, secrets) != nil || mark(nil) != nil || markCreate(nil) != nil {
		t.Error("no error is one")
	}
}

// gRPC gives the code of an answer to an answer that it does not read, after which the volume may exist.
func TestAnswerUnreadByGRPCIsUncertain(t *testing.T) {
	for _, c := range []struct {
		code codes.Code
		text string
		want errclass.Class
	}{
		{codes.ResourceExhausted, "no space", errclass.Exhausted},
		{codes.ResourceExhausted, "grpc: received message larger than max (99 vs. 9)", errclass.Uncertain},
		{codes.ResourceExhausted, "trying to send message larger than max (99 vs. 9)", errclass.Uncertain},
		{codes.ResourceExhausted, "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM", errclass.Uncertain},
		{codes.PermissionDenied, "no", errclass.Refused},
		{codes.PermissionDenied, "stream terminated by RST_STREAM with error code: INADEQUATE_SECURITY", errclass.Uncertain},
		{codes.InvalidArgument, "grpc: not ours", errclass.Unfit},
	} {
		if got := errclass.Of(markCreate(plainly(status.Error(c.code, c.text), nil))); got != c.want {
			t.Errorf("%s %q is %v, want %v", c.code, c.text, got, c.want)
		}
	}
}
