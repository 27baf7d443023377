package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/mounts"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/socket"
)

// Config describes the driver that the server plays.
type Config struct {
	// Name is the driver's name, which is required, and Version its vendor version.
	Name, Version string
	// NodeID is the id of the node on which the node service runs. Required.
	NodeID string
	// Kubelets are further nodes. The driver mounts volumes of VolumesDir for their pods, and keeps the data of snapshots
	// in SnapshotsDir, so both are then required. Mounting needs root.
	Kubelets                 []Kubelet
	VolumesDir, SnapshotsDir string
	// Capabilities are the advertised capabilities, and calls without their capability are answered Unimplemented.
	Capabilities Capabilities
	// Topology is the topology of the nodes, set if and only if VolumeTopology is among the capabilities.
	Topology map[string]string
	// MaxVolumesPerNode is the value in NodeGetInfo, by default 0 for no limit.
	MaxVolumesPerNode int
	// MaxVolumeBytes is the value in GetCapacity, by default 0 for no limit.
	MaxVolumeBytes int64
	// MaxCalls is the maximum number of controller and node calls in progress, by default 0 for no limit. Further calls
	// wait, or with RefuseCalls are answered ResourceExhausted.
	MaxCalls    int
	RefuseCalls bool
	// AbortPending answers Aborted to a call for a volume or snapshot that has another call pending. By default such
	// calls are serialized.
	AbortPending bool
	// ReadyAfter is the time after New during which the driver is not ready, and answers Unavailable to controller and
	// node calls. By default it is ready at once.
	ReadyAfter time.Duration
	// Secrets are required secrets by key, with an empty value for any value. A call that can carry secrets but lacks
	// one is answered Unauthenticated.
	Secrets map[string]string
	// Parameters are the accepted parameters of CreateVolume; others are answered InvalidArgument. By default any
	// parameter is accepted.
	Parameters []string
	// Grace is the time that calls have to end when the driver stops, by default 5 seconds.
	Grace time.Duration
	// Now is the clock, by default time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate returns an error about the first invalid setting, or nil.
func (c Config) Validate() error {
	switch {
	case !validDriverName(c.Name):
		return fmt.Errorf("driver name %q: want a domain name such as mock.csi-reclaimer.io, at most 63 characters", c.Name)
	case c.MaxCalls < 0:
		return fmt.Errorf("max calls %d: must not be negative", c.MaxCalls)
	case c.Capabilities[VolumeTopology] != (len(c.Topology) > 0):
		return fmt.Errorf("topology %v: goes with capability %s", c.Topology, VolumeTopology)
	case len(c.Kubelets) > 0 && (c.VolumesDir == "" || c.SnapshotsDir == ""):
		return errors.New("kubelets: volumes and snapshots need directories")
	}
	for _, k := range c.Kubelets {
		if err := k.validate(); err != nil {
			return err
		}
	}
	if err := validateNodeID(c.NodeID); err != nil {
		return err
	}
	return c.Capabilities.Validate()
}

func validateNodeID(id string) error {
	if id == "" || len(id) > 256 {
		return fmt.Errorf("node id %q: want 1 to 256 bytes", id)
	}
	return nil
}

// Server serves the driver's gRPC services on one or more sockets.
type Server struct {
	config  Config
	backend *backend.Backend
	faults  *faults.Engine
	ledger  *ledger.Writer
	log     *slog.Logger
	readyAt time.Time
	mounts  *mounts.Mounts

	slots   chan struct{}
	pending sync.Map      // of the volumes and snapshots with an operation in progress
	lost    chan struct{} // Closed when a write to the ledger fails.
	lose    func()
}

// New returns a Server without starting it, or an error if the configuration is invalid.
func New(b *backend.Backend, f *faults.Engine, l *ledger.Writer, log *slog.Logger, config Config) (*Server, error) {
	config = config.withDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	s := &Server{config: config, backend: b, faults: f, ledger: l, log: log,
		readyAt: config.Now().Add(config.ReadyAfter), lost: make(chan struct{})}
	if len(config.Kubelets) > 0 {
		s.mounts = mounts.New(config.VolumesDir, config.SnapshotsDir)
	}
	s.lose = sync.OnceFunc(func() { close(s.lost) })
	if config.MaxCalls > 0 {
		s.slots = make(chan struct{}, config.MaxCalls)
	}
	return s, nil
}

// Run serves on the listener, and for the kubelets on their sockets, until ctx ends. Then it gives calls
// [Config.Grace] to end, and returns when everything it started has ended.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	endpoints, err := s.listenForKubelets(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("serve: %w", err), l.Close())
	}
	g := s.newServer(&node{Server: s, id: s.config.NodeID})
	csi.RegisterControllerServer(g, &controller{Server: s})
	endpoints = append(endpoints, endpoint{g, l})

	served := make(chan error, len(endpoints))
	for _, e := range endpoints {
		go func() { served <- e.server.Serve(e.listener) }()
	}
	open := len(endpoints)
	select {
	case err = <-served:
		err, open = fmt.Errorf("serve: %w", err), open-1
	case <-s.lost:
		err = s.ledger.Err()
	case <-ctx.Done():
	}
	s.stop(endpoints)
	for range open {
		if stopped := <-served; stopped != nil && !errors.Is(stopped, grpc.ErrServerStopped) {
			err = errors.Join(err, fmt.Errorf("serve: %w", stopped))
		}
	}
	return err
}

// newServer returns a gRPC server with the identity service and a node service.
func (s *Server) newServer(n *node) *grpc.Server {
	g := grpc.NewServer(grpc.Creds(socket.Credentials()), grpc.UnaryInterceptor(n.handle))
	csi.RegisterIdentityServer(g, &identity{Server: s})
	csi.RegisterNodeServer(g, n)
	return g
}

func (s *Server) stop(endpoints []endpoint) {
	s.faults.Release()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		var stopping sync.WaitGroup
		for _, e := range endpoints {
			stopping.Go(e.server.GracefulStop)
		}
		stopping.Wait()
	}()
	grace := time.NewTimer(s.config.Grace)
	defer grace.Stop()
	select {
	case <-stopped:
	case <-grace.C:
		s.log.Warn("calls cut off, they took longer than the grace period", "grace", s.config.Grace)
		for _, e := range endpoints {
			e.server.Stop()
		}
		<-stopped
	}
}

func (s *Server) can(c Capability) bool { return s.config.Capabilities[c] }

func (s *Server) ready() bool { return !s.config.Now().Before(s.readyAt) }

type identity struct {
	csi.UnimplementedIdentityServer
	*Server
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.config.Name, VendorVersion: i.config.Version}, nil
}

func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(i.ready())}, nil
}

func (i *identity) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	r := &csi.GetPluginCapabilitiesResponse{}
	for _, c := range []struct {
		capability Capability
		service    csi.PluginCapability_Service_Type
		expansion  csi.PluginCapability_VolumeExpansion_Type
	}{
		{ControllerService, csi.PluginCapability_Service_CONTROLLER_SERVICE, 0},
		{VolumeTopology, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS, 0},
		{SnapshotTopology, csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS, 0},
		{ExpansionOnline, 0, csi.PluginCapability_VolumeExpansion_ONLINE},
		{ExpansionOffline, 0, csi.PluginCapability_VolumeExpansion_OFFLINE},
	} {
		switch {
		case !i.can(c.capability):
		case c.expansion != 0:
			r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
				VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: c.expansion}}})
		default:
			r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
				Service: &csi.PluginCapability_Service{Type: c.service}}})
		}
	}
	return r, nil
}

// Kubelet is a further node. The driver serves a separate node service for its kubelet, and mounts volumes there.
type Kubelet struct {
	// NodeID is the node id that NodeGetInfo of this service reports.
	NodeID string
	// RootDir is the kubelet's --root-dir.
	RootDir string
}

func (k Kubelet) validate() error {
	if !filepath.IsAbs(k.RootDir) {
		return fmt.Errorf("kubelet of node %q: root directory %q is not an absolute path", k.NodeID, k.RootDir)
	}
	return validateNodeID(k.NodeID)
}

type endpoint struct {
	server   *grpc.Server
	listener net.Listener
}

// listenForKubelets creates two endpoints for each kubelet: the driver's, without the controller service, and a
// registration socket in the kubelet's plugins_registry, like the one of node-driver-registrar.
func (s *Server) listenForKubelets(ctx context.Context) (endpoints []endpoint, err error) {
	for _, k := range s.config.Kubelets {
		service := filepath.Join(k.RootDir, "plugins", s.config.Name, "csi.sock")
		driver := s.newServer(&node{Server: s, id: k.NodeID, mounts: s.mounts})
		registry := grpc.NewServer()
		registration.RegisterRegistrationServer(registry, &registrar{name: s.config.Name, service: service, log: s.log})
		for _, e := range []struct {
			path   string
			server *grpc.Server
		}{
			{service, driver}, // first, because a kubelet calls it as soon as it finds the registration socket
			{filepath.Join(k.RootDir, "plugins_registry", s.config.Name+"-reg.sock"), registry},
		} {
			l, err := socket.ListenBelow(ctx, e.path)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("kubelet of node %q: %w", k.NodeID, err), closeAll(endpoints))
			}
			endpoints = append(endpoints, endpoint{e.server, l})
		}
	}
	return endpoints, nil
}

func closeAll(endpoints []endpoint) error {
	var err error
	for _, e := range endpoints {
		err = errors.Join(err, e.listener.Close())
	}
	return err
}

// registrar registers the driver with a kubelet (k8s.io/kubelet/pkg/apis/pluginregistration/v1).
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, service string
	log           *slog.Logger
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.service,
		SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registrar) NotifyRegistrationStatus(ctx context.Context,
	status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.GetPluginRegistered() {
		r.log.ErrorContext(ctx, "kubelet refuses the driver", "endpoint", r.service, "error", status.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
