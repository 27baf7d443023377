package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

// Config is what kind of driver the server plays.
type Config struct {
	// Name is the driver's name, and Version its version. Required.
	Name, Version string
	// NodeID is the node that the node service runs on. Required.
	NodeID string
	// Kubelets are further nodes, for whose pods the driver mounts the volumes in VolumesDir, which must be given then.
	// That needs root.
	Kubelets   []Kubelet
	VolumesDir string
	// Capabilities are advertised, and nothing else is served.
	Capabilities Capabilities
	// Topology is where the node is. Empty unless VolumeTopology is among the capabilities.
	Topology map[string]string
	// MaxVolumesPerNode is advertised by NodeGetInfo. Default 0: not limited.
	MaxVolumesPerNode int
	// MaxVolumeBytes is advertised by GetCapacity. Default 0: not limited.
	MaxVolumeBytes int64
	// MaxCalls is how many controller and node calls are worked on at once. Further ones wait, or are refused with
	// ResourceExhausted. Default 0: no limit.
	MaxCalls    int
	RefuseCalls bool
	// AbortPending answers Aborted to a call for a volume or snapshot that has another call pending. Default false:
	// calls take turns.
	AbortPending bool
	// ReadyAfter is how long after New the driver reports that it is not ready, and answers Unavailable to controller
	// and node calls.
	ReadyAfter time.Duration
	// Secrets are the keys, and values, without which a call that can carry secrets is answered Unauthenticated. An
	// empty value means any.
	Secrets map[string]string
	// Parameters are those that CreateVolume takes; others are refused with InvalidArgument. Default: any.
	Parameters []string
	// Grace is how long calls may take to end when the driver stops. Default 5 s.
	Grace time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Grace == 0 {
		c.Grace = 5 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate reports the first setting that makes no sense.
func (c Config) Validate() error {
	switch {
	case !validDriverName(c.Name):
		return fmt.Errorf("driver name %q: want a domain name such as mock.csi-reclaimer.io, at most 63 characters", c.Name)
	case c.MaxCalls < 0:
		return fmt.Errorf("max calls %d: must not be negative", c.MaxCalls)
	case c.Capabilities[VolumeTopology] != (len(c.Topology) > 0):
		return fmt.Errorf("topology %v: goes with capability %s", c.Topology, VolumeTopology)
	case len(c.Kubelets) > 0 && c.VolumesDir == "":
		return errors.New("kubelets: volumes without a directory cannot be mounted")
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

// validateNodeID applies the limit of NodeGetInfoResponse.node_id.
func validateNodeID(id string) error {
	if id == "" || len(id) > 256 {
		return fmt.Errorf("node id %q: want 1 to 256 bytes", id)
	}
	return nil
}

// Server serves the driver.
type Server struct {
	config  Config
	backend *backend.Backend
	faults  *faults.Engine
	ledger  *ledger.Writer
	log     *slog.Logger
	readyAt time.Time
	mounts  *mounts

	slots   chan struct{}
	pending pending
	lost    chan struct{} // Closed when the ledger can no longer be written.
	lose    func()
}

// New returns a server that starts nothing.
func New(b *backend.Backend, f *faults.Engine, l *ledger.Writer, log *slog.Logger, config Config) (*Server, error) {
	config = config.withDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	s := &Server{config: config, backend: b, faults: f, ledger: l, log: log,
		readyAt: config.Now().Add(config.ReadyAfter), lost: make(chan struct{})}
	if len(config.Kubelets) > 0 {
		s.mounts = &mounts{volumes: config.VolumesDir, mounter: newMounter()}
	}
	s.lose = sync.OnceFunc(func() { close(s.lost) })
	if config.MaxCalls > 0 {
		s.slots = make(chan struct{}, config.MaxCalls)
	}
	return s, nil
}

// Run serves on a listener, and for the kubelets on sockets of theirs, until the context ends, then lets calls end for
// [Config.Grace], and returns when all that it started has ended.
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

// newServer returns a server of the identity service and a node service.
func (s *Server) newServer(n *node) *grpc.Server {
	g := grpc.NewServer(grpc.Creds(newKnowCallers()), grpc.UnaryInterceptor(s.handler(n.id)))
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
