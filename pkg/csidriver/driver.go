package csidriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// Config holds the settings of a connection to a driver. The zero value is usable.
type Config struct {
	// Timeout bounds each call. Default 10 seconds, as in the other kubernetes-csi sidecars.
	Timeout time.Duration
	// SayEvery is the interval between log lines that report a wait for the driver. Default 5 seconds.
	SayEvery time.Duration
	// ProbeEvery is the delay between two calls to a driver that is not ready yet. Default 1 second.
	ProbeEvery time.Duration
	// Lease is checked before each CreateVolume and DeleteVolume, which fail with ErrLeaseExpired once no time is left.
	// Default nil: no leader election.
	Lease Lease
	// Metrics records every call as csi_sidecar_operations_seconds. Default none.
	Metrics metrics.CSIMetricsManager
	// TracerProvider creates a span for each CreateVolume and DeleteVolume that is part of a trace, and passes the
	// trace on to the driver (W3C trace context). Default none.
	TracerProvider trace.TracerProvider
	// Clock is replaced in tests. Default: the real clock.
	Clock clock.WithTicker
}

// Lease reports how long this process may still act as the leader; at zero or less it must not act. See
// leadership.Holder.
// It is safe for concurrent use.
type Lease interface {
	Left() time.Duration
}

func (c Config) withDefaults() Config {
	c.Timeout, c.SayEvery = cmp.Or(c.Timeout, 10*time.Second), cmp.Or(c.SayEvery, 5*time.Second)
	c.ProbeEvery, c.Clock = cmp.Or(c.ProbeEvery, time.Second), settings.Clock(c.Clock)
	return c
}

// Driver is a connection to a CSI driver that has been ready once. After a loss it reconnects and asks for the name
// and capabilities again; until they are known, calls fail as Uncertain. It is safe for concurrent use.
type Driver struct {
	cfg  Config
	conn *grpc.ClientConn
	// end stops the goroutines that watch the connection, and running counts them.
	end     context.CancelFunc
	running sync.WaitGroup
	// loss holds an element after a loss of the connection.
	loss chan struct{}
	// replaced is closed when err is set.
	replaced chan struct{}

	// judging is held while fits checks a driver.
	judging sync.Mutex
	fits    func(ctx context.Context, before, after Facts) error

	mu    sync.Mutex
	facts Facts
	// lost counts the losses of the connection. known is its value for the connection of facts.
	lost, known int
	// place: facts include the segments.
	place bool
	err   error
}

// Connect waits until the driver at the address is ready, and asks for its name and capabilities. It waits as long as
// ctx lives, and logs the missing answer every cfg.SayEvery. It returns earlier only for an error that waiting cannot
// fix: an address that can never be a socket (ErrAddress), or an invalid name (ErrDriverName). The caller closes the
// Driver.
func Connect(ctx context.Context, address string, cfg Config) (*Driver, error) {
	cfg = cfg.withDefaults()
	path, err := SocketPath(address)
	if err != nil {
		return nil, err
	}

	d := &Driver{cfg: cfg, loss: make(chan struct{}, 1), replaced: make(chan struct{})}
	if d.conn, err = dial(ctx, path, cfg, d.lose); err != nil {
		return nil, err
	}
	following, end := context.WithCancel(context.WithoutCancel(ctx))
	d.end = end
	// A file that was missing before may have turned out to be a link.
	if _, err := SocketPath(address); err != nil {
		d.Close()
		return nil, err
	}
	if err := d.introduce(ctx); err != nil {
		d.Close()
		return nil, err
	}
	d.follow(following)
	return d, nil
}

// dial returns once the socket has accepted a connection. lost is called before each reconnection.
func dial(ctx context.Context, path string, cfg Config, lost func(context.Context) bool) (*grpc.ClientConn, error) {
	stop := sayWhile(ctx, cfg, func(ctx context.Context) []any { return socketState(path, reach(ctx, path)) })
	defer stop()
	// No timeout, because the driver's container may need any time to start.
	options := []connection.Option{connection.WithTimeout(0), connection.OnConnectionLoss(lost)}
	if cfg.Metrics != nil {
		options = append(options, connection.WithMetrics(cfg.Metrics))
	}
	conn, err := connection.ConnectWithoutMetrics(ctx, "unix://"+path, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to the CSI driver at %q: %w", path, err)
	}
	return conn, nil
}

// sayWhile logs every SayEvery that the socket is awaited, with its state, until stop is called.
func sayWhile(ctx context.Context, cfg Config, state func(context.Context) []any) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := cfg.Clock.NewTicker(cfg.SayEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
				klog.FromContext(ctx).Info("Waiting for the CSI driver's socket", state(ctx)...)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// ask gathers the driver's facts. It repeats each call until the driver answers, because a driver may restart during
// its start.
func (d *Driver) ask(ctx context.Context) (facts Facts, err error) {
	if err := d.until(ctx, "be ready", func(ctx context.Context) (bool, error) {
		return rpc.Probe(ctx, d.conn)
	}); err != nil {
		return facts, err
	}
	if err := d.until(ctx, "return its name", func(ctx context.Context) (bool, error) {
		info, err := csi.NewIdentityClient(d.conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
		facts.Name, facts.Version = info.GetName(), text.Truncate(info.GetVendorVersion(), maxHandle)
		return true, err
	}); err != nil {
		return facts, err
	}
	if err := CheckName(facts.Name); err != nil && d.Name() == "" {
		return facts, err
	}
	if err := d.until(ctx, "return its capabilities", func(ctx context.Context) (bool, error) {
		services, err := rpc.GetPluginCapabilities(ctx, d.conn)
		if err != nil {
			return false, err
		}
		var controller rpc.ControllerCapabilitySet
		// A driver without controller service need not implement the next call.
		if services[csi.PluginCapability_Service_CONTROLLER_SERVICE] {
			if controller, err = rpc.GetControllerCapabilities(ctx, d.conn); err != nil {
				return false, err
			}
		}
		facts.Services, facts.Controller = services, controller
		return true, nil
	}); err != nil {
		return facts, err
	}
	d.mu.Lock()
	place := d.place
	d.mu.Unlock()
	if !place || !facts.Services[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS] {
		return facts, nil
	}
	facts.Segments, err = d.askPlace(ctx)
	return facts, err
}

// Refresh asks the driver for its facts again, until it answers or ctx ends. A reconnection does so by itself, but
// the capabilities of a connected driver can also change, once it has found its backend.
func (d *Driver) Refresh(ctx context.Context) error { return d.introduce(ctx) }

// until repeats a call until its answer is yes, and logs the missing answer every SayEvery.
func (d *Driver) until(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	logger := klog.FromContext(ctx)
	said := time.Time{}
	for {
		call, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
		yes, err := ask(call)
		cancel()
		if err == nil && yes {
			return nil
		}
		if now := d.cfg.Clock.Now(); now.Sub(said) >= d.cfg.SayEvery {
			logger.Info("Waiting for the CSI driver to "+what, "lastError", plainly(err, nil))
			said = now
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the CSI driver to %s: %w", what, ctx.Err())
		case <-d.cfg.Clock.After(d.cfg.ProbeEvery):
		}
	}
}

// CheckName returns an error that wraps ErrDriverName if the name is not valid for a CSI driver: domain name
// notation, at most 63 characters (CSI spec, "GetPluginInfo").
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the driver answers GetPluginInfo with an empty name", ErrDriverName)
	case len(name) > 63:
		return fmt.Errorf("%w: %q has %d characters, the CSI specification allows 63", ErrDriverName,
			text.Truncate(name, maxHandle), len(name))
	}
	// The spec allows upper case, unlike Kubernetes' own check. Some non-ASCII letters, such as the Kelvin sign, have an
	// ASCII letter as their lower case.
	foreign := strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII })
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(name)); foreign || len(problems) > 0 {
		return fmt.Errorf("%w: %q: the CSI specification wants domain name notation, such as disk.csi.example.com",
			ErrDriverName, name)
	}
	return nil
}

// Facts returns the facts as last gathered: by Connect, after a loss of the connection, or by Refresh. The caller
// must not modify its maps.
func (d *Driver) Facts() Facts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.facts
}

// Name returns the driver's name, as in spec.csi.driver of its PVs. It never changes: see ErrReplaced.
func (d *Driver) Name() string { return d.Facts().Name }

// Version returns the driver's vendor_version (GetPluginInfo); see Facts.
func (d *Driver) Version() string { return d.Facts().Version }

// Has reports whether the driver advertises the controller capability; see Facts.
func (d *Driver) Has(c csi.ControllerServiceCapability_RPC_Type) bool { return d.Facts().Controller[c] }

// CanDelete reports whether the driver creates and deletes volumes (CREATE_DELETE_VOLUME). A driver without this
// capability refuses every DeleteVolume.
func (d *Driver) CanDelete() bool {
	return d.Has(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME)
}

// Attaches reports whether the driver attaches its volumes to nodes (PUBLISH_UNPUBLISH_VOLUME), in which case a
// VolumeAttachment marks a volume in use.
func (d *Driver) Attaches() bool {
	return d.Has(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
}

// Offers reports whether the driver advertises the service (GetPluginCapabilities); see Facts.
func (d *Driver) Offers(service csi.PluginCapability_Service_Type) bool {
	return d.Facts().Services[service]
}

// HasTopology reports whether some nodes cannot access all volumes of the driver (VOLUME_ACCESSIBILITY_CONSTRAINTS),
// in which case CreateVolume needs to know the topology where the volume is required.
func (d *Driver) HasTopology() bool {
	return d.Offers(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
}

// Probe asks the driver once whether it is healthy and ready (CSI spec, "Probe"). It returns nil for a ready driver
// whose facts are known, and else an error.
func (d *Driver) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	ready, err := rpc.Probe(ctx, d.conn)
	if err != nil {
		return fmt.Errorf("probe the CSI driver: %w", plainly(err, nil))
	}
	if !ready {
		return fmt.Errorf("probe the CSI driver: %q says that it is not ready", d.Name())
	}
	if err := d.Known(); err != nil {
		return fmt.Errorf("probe the CSI driver: %w", err)
	}
	return nil
}

// Close closes the connection. Calls in flight fail.
func (d *Driver) Close() {
	d.end()
	// The only possible error reports that it was already closed.
	_ = d.conn.Close()
	d.running.Wait()
}

// ErrNowhere: the driver reports no topology segments for its node.
var ErrNowhere = errors.New("the driver does not say in which place of its topology it is")

// Segments returns the driver's topology segments: accessible_topology of NodeGetInfo (CSI spec, "NodeGetInfo"). Like
// Connect, it waits until the driver answers or ctx ends. It returns ErrNowhere if the driver has no topology,
// reports no segment, or does not implement NodeGetInfo.
func (d *Driver) Segments(ctx context.Context) (map[string]string, error) {
	if !d.HasTopology() {
		return nil, fmt.Errorf("%w: it does not report VOLUME_ACCESSIBILITY_CONSTRAINTS", ErrNowhere)
	}
	d.mu.Lock()
	d.place = true
	d.mu.Unlock()
	if err := d.introduce(ctx); err != nil {
		return nil, err
	}
	segments := d.Facts().Segments
	if len(segments) == 0 {
		return nil, fmt.Errorf("%w: its NodeGetInfo has no accessible_topology", ErrNowhere)
	}
	return segments, nil
}

// askPlace returns the driver's topology segments once it answers, and none for a driver without NodeGetInfo.
func (d *Driver) askPlace(ctx context.Context) (map[string]string, error) {
	var info *csi.NodeGetInfoResponse
	if err := d.until(ctx, "return its topology", func(ctx context.Context) (answered bool, err error) {
		info, err = csi.NewNodeClient(d.conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
		if status.Code(err) == codes.Unimplemented {
			return true, nil // waiting does not help
		}
		return true, err
	}); err != nil {
		return nil, err
	}
	return info.GetAccessibleTopology().GetSegments(), nil
}
