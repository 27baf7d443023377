package csidriver

import (
	"context"
	"fmt"
	"strconv"
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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/migration"
)

// Config holds the settings of a connection to a driver. The zero value is usable.
type Config struct {
	// Timeout bounds each single call. Default 10 seconds, as in the other
	// kubernetes-csi sidecars.
	Timeout time.Duration
	// SayEvery is how often a wait for the driver is logged. Default 5 seconds.
	SayEvery time.Duration
	// ProbeEvery is how long to wait between two Probe calls while the driver is not
	// ready. Default 1 second.
	ProbeEvery time.Duration
	// Lease is asked before each call that makes or deletes something: those are refused with an error that
	// wraps ErrLeaseExpired when nothing is left of it. Default nil: there is no leader election.
	Lease Lease
	// Metrics records every call as csi_sidecar_operations_seconds. Default none.
	Metrics metrics.CSIMetricsManager
	// TracerProvider makes a span of a DeleteVolume that is part of a trace, and hands the trace on to the
	// driver (W3C trace context). Default none.
	TracerProvider trace.TracerProvider
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

// Lease says how long this process may still act as the leader: at zero or less it must not, see
// lease.Holder. It is safe for concurrent use.
type Lease interface {
	Left() time.Duration
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.SayEvery == 0 {
		c.SayEvery = 5 * time.Second
	}
	if c.ProbeEvery == 0 {
		c.ProbeEvery = time.Second
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}

// Driver is a connection to one CSI driver that was ready once. A driver that goes away
// is reconnected to, and asked for its name and capabilities again; calls made meanwhile fail as Uncertain. It is safe
// for concurrent use.
type Driver struct {
	cfg  Config
	conn *grpc.ClientConn
	// end ends what follows the connection, and running counts it.
	end     context.CancelFunc
	running sync.WaitGroup
	// loss has an element after a loss of the connection.
	loss chan struct{}
	// replaced is closed when err is set.
	replaced chan struct{}

	// judging is held while a driver is judged by fits.
	judging sync.Mutex
	fits    func(ctx context.Context, before, after Facts) error

	mu    sync.Mutex
	facts Facts
	// lost is how many connections were lost, and known how many of them before the one that facts are of.
	lost, known int
	// place: facts include the segments.
	place bool
	err   error
}

// Connect waits until the driver behind address is there and ready, and asks for its
// name and capabilities. It waits as long as ctx lives, logging what it waits for every
// cfg.SayEvery; it returns early only for what waiting cannot mend: an address that can
// never be a socket (ErrAddress), a name that is none (ErrDriverName).
// The caller closes the Driver.
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
	// What was not there at first may have turned out to be a link.
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

// dial returns once the socket accepted a connection. lost is called before each further one.
func dial(ctx context.Context, path string, cfg Config, lost func(context.Context) bool) (*grpc.ClientConn, error) {
	stop := sayWhile(ctx, cfg, "Waiting for the CSI driver's socket", "socket", path)
	defer stop()
	// No bound of its own: the driver's container may take as long as it likes to start.
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

// sayWhile logs the message at once, unless the wait is over within SayEvery, and then
// again and again until stop is called.
func sayWhile(ctx context.Context, cfg Config, message string, keysAndValues ...any) (stop func()) {
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
				klog.FromContext(ctx).Info(message, keysAndValues...)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// ask learns who the driver is. Each answer is asked for until it comes: a driver
// may go away again while it starts.
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

// Refresh asks for what the driver says of itself again, until it is answered or ctx ends. After a loss of the
// connection that is done unasked; a driver that stays can have other capabilities once it has found its backend.
func (d *Driver) Refresh(ctx context.Context) error { return d.introduce(ctx) }

// until asks again and again until the answer is yes, and says what it waits for.
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

// CheckName returns an error that wraps ErrDriverName if name is not one a CSI driver may
// have: domain name notation, at most 63 characters (CSI spec, "GetPluginInfo").
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the driver answers GetPluginInfo with an empty name", ErrDriverName)
	case len(name) > 63:
		return fmt.Errorf("%w: %q has %d characters, the CSI specification allows 63", ErrDriverName,
			text.Truncate(name, maxHandle), len(name))
	}
	// The spec allows upper case where Kubernetes' own check does not. Some letters that are not
	// ASCII have a small one that is, such as the Kelvin sign.
	foreign := strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII })
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(name)); foreign || len(problems) > 0 {
		return fmt.Errorf("%w: %q: the CSI specification wants domain name notation, such as disk.csi.example.com",
			ErrDriverName, name)
	}
	return nil
}

// Facts returns what the driver said of itself when it was last asked: by Connect, after a loss of the connection, or
// by Refresh. Its maps are not to be changed.
func (d *Driver) Facts() Facts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.facts
}

// Name returns the driver's name, as in spec.csi.driver of its PVs. It never changes: see ErrReplaced.
func (d *Driver) Name() string { return d.Facts().Name }

// Version returns the driver's vendor_version (GetPluginInfo); see Facts.
func (d *Driver) Version() string { return d.Facts().Version }

// Has reports whether the driver advertised the controller capability when it was last asked; see Facts.
func (d *Driver) Has(c csi.ControllerServiceCapability_RPC_Type) bool { return d.Facts().Controller[c] }

// CanDelete reports whether the driver creates and deletes volumes
// (CREATE_DELETE_VOLUME). Without it every DeleteVolume would be refused.
func (d *Driver) CanDelete() bool {
	return d.Has(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME)
}

// Attaches reports whether volumes of this driver are attached to nodes
// (PUBLISH_UNPUBLISH_VOLUME), so that a VolumeAttachment says one is in use.
func (d *Driver) Attaches() bool {
	return d.Has(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
}

// Offers reports whether the driver advertised the service (GetPluginCapabilities) when it was last
// asked; see Facts.
func (d *Driver) Offers(service csi.PluginCapability_Service_Type) bool {
	return d.Facts().Services[service]
}

// HasTopology reports whether volumes of this driver are not reachable from every node
// (VOLUME_ACCESSIBILITY_CONSTRAINTS), so that CreateVolume wants to know where they are needed.
func (d *Driver) HasTopology() bool {
	return d.Offers(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
}

// Probe asks the driver once whether it is healthy and ready (CSI spec, "Probe").
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

// DeleteVolume asks the driver to delete the volume with this handle and returns once
// the driver answered or the timeout passed. nil means that the volume is gone (CSI spec,
// "DeleteVolume"). An error carries its errclass.Class; one that is Uncertain may have
// deleted. secrets may be nil and are never logged; where the driver repeats one in the
// message of its error, it is hidden.
func (d *Driver) DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error {
	if err := d.mayAct(); err != nil {
		return fmt.Errorf("delete volume %q: %w", text.Truncate(handle, maxHandle), err)
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	logger := klog.FromContext(ctx).V(5)
	logger.Info("Calling DeleteVolume", "volumeHandle", text.Truncate(handle, maxHandle), "secrets", len(secrets))
	ctx, endSpan := d.beginSpan(ctx, "csi.v1.Controller/DeleteVolume")
	// Without a logger for csi-lib-utils, which would log the driver's error as it came.
	_, err := csi.NewControllerClient(d.conn).DeleteVolume(forLibrary(ctx), &csi.DeleteVolumeRequest{
		VolumeId: handle,
		Secrets:  secrets,
	}, d.ifKnown())
	err = plainly(err, secrets)
	endSpan(err)
	logger.Info("DeleteVolume was answered", "volumeHandle", text.Truncate(handle, maxHandle), "err", err)
	if err != nil {
		return mark(fmt.Errorf("delete volume %q: %w", text.Truncate(handle, maxHandle), err))
	}
	return nil
}

// mayAct is an error when this process must not have the driver make or delete anything.
func (d *Driver) mayAct() error {
	if d.cfg.Lease == nil || d.cfg.Lease.Left() > 0 {
		return nil
	}
	return ErrLeaseExpired
}

// forLibrary returns the context of a call as csi-lib-utils is to see it: without a logger, and with what its
// metrics say of the volume (package migration), which they do only if they have that label.
func forLibrary(ctx context.Context) context.Context {
	migrated := connection.AdditionalInfo{Migrated: strconv.FormatBool(migration.Marked(ctx))}
	return context.WithValue(klog.NewContext(ctx, klog.Logger{}), connection.AdditionalInfoKey, migrated)
}

// Close ends the connection. Calls in flight fail.
func (d *Driver) Close() {
	d.end()
	// The only error is that of closing twice.
	_ = d.conn.Close()
	d.running.Wait()
}
