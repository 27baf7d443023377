package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/authorization"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/internal/version"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// sidecar holds everything that the controllers of one process share.
type sidecar struct {
	*options
	// config is for reads, and acting for writes that only the leader makes.
	config, acting *rest.Config
	clock          *leadership.Clock
	driver         *csidriver.Driver
	// wired is the part of the setup that depends on the driver, guarded by mu; see wiring.
	mu    sync.Mutex
	wired wiring
	// node is the only node whose volumes the process handles, or nil for all nodes.
	node    *volume.Node
	nodes   *nodes.Lister
	events  record.EventRecorder
	metrics *ownMetrics
	traces  trace.TracerProvider
	filter  *authorization.Filter
	stdout  io.Writer
}

// Run runs the sidecar until ctx ends or an error occurs that waiting cannot fix.
func (o *options) Run(ctx context.Context, stdout io.Writer) error {
	return app.AtEnd(ctx, o.releaseFinalizers, o.work(ctx, stdout))
}

func (o *options) work(ctx context.Context, stdout io.Writer) error {
	config, err := o.cluster.Config(name)
	if err != nil {
		return err
	}
	// The address is checked before the program listens on its port, so that a typo shows at once.
	if _, err := csidriver.SocketPath(o.csiAddress); err != nil {
		return fmt.Errorf("--csi-address: %w", err)
	}
	state := health.NewState(func() error { return errors.New("waiting for the CSI driver") })
	rpcs := newRPCMetrics()
	metrics := &ownMetrics{Registry: prometheus.NewRegistry()}
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stopBackground()
	if o.checksLeaks() {
		o.http.Handle(leaksPath, &o.leaks.board)
	}
	filter, err := authorization.New(config)
	if err != nil {
		return err
	}
	if err := o.http.Start(background, &running, filter, state, metrics, rpcs); err != nil {
		return err
	}
	traces, stopTraces, err := o.traces.Start(ctx, name, version.Get())
	if err != nil {
		return err
	}
	defer stopTraces()
	clock := o.leader.Clock(o.dryRun)
	driver, err := csidriver.Connect(ctx, o.csiAddress, csidriver.Config{
		Lease: clock, Timeout: o.timeout, Metrics: rpcs, TracerProvider: traces,
	})
	if err != nil {
		return err
	}
	defer driver.Close()
	rpcs.SetDriverName(driver.Name())
	klog.FromContext(ctx).Info("Connected to the CSI driver",
		"driver", driver.Name(), "attaches", driver.Attaches(), "role", o.role)
	if err := waitForDeletion(ctx, o, driver, state); err != nil {
		return err
	}
	events, stopEvents, err := app.EventRecorder(background, config, clock, name+"/"+driver.Name(),
		prometheus.WrapRegistererWith(prometheus.Labels{"driver_name": driver.Name()}, metrics))
	if err != nil {
		return err
	}
	defer stopEvents()
	s := &sidecar{
		options: o, config: config, acting: app.LeaderConfig(config, clock), clock: clock, driver: driver,
		events: events, metrics: metrics, traces: traces, filter: filter, stdout: stdout, wired: o.wiring(),
	}
	return s.runUntilReplaced(ctx, background, &running, state)
}

// runUntilReplaced runs until ctx ends or an error occurs. A replacement of the driver is an error if this process is
// not set up for the new one.
func (s *sidecar) runUntilReplaced(ctx, background context.Context, running *sync.WaitGroup,
	state *health.State) error {
	s.driver.Require(s.fits)
	ctx, end := context.WithCancel(ctx)
	defer end()
	running.Go(func() {
		select {
		case <-s.driver.Replaced():
			end()
		case <-background.Done():
		}
	})
	err := s.run(ctx, background, running, state)
	if replaced := s.driver.Err(); replaced != nil {
		return fmt.Errorf("%w; start anew", replaced)
	}
	return err
}

// fits returns an error if the process cannot continue with the driver that now serves the socket.
func (s *sidecar) fits(ctx context.Context, before, after csidriver.Facts) error {
	s.mu.Lock()
	wired := s.wired
	s.mu.Unlock()
	unattached := false
	if wired.neverAttached {
		var err error
		if unattached, err = requiresNoAttachment(ctx, s.config, s.driver.Name()); err != nil {
			return err
		}
	}
	if words := wired.misfit(before, after, unattached); words != "" {
		return errors.New(words)
	}
	return nil
}

// neverAttached reports whether the reclaimer can omit the check of VolumeAttachments; see requiresNoAttachment.
func (s *sidecar) neverAttached(ctx context.Context) (never bool, err error) {
	set := func(never bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wired.neverAttached = never
	}
	set(true) // applies to a driver that replaces this one in the meantime
	if !s.driver.Attaches() {
		never, err = requiresNoAttachment(ctx, s.config, s.driver.Name())
	}
	set(never)
	return never, err
}

// run creates and runs the controllers. Goroutines that must outlive them use background and are counted by running.
func (s *sidecar) run(ctx, background context.Context, running *sync.WaitGroup, state *health.State) (err error) {
	if s.node, err = s.options.node.node(ctx, s.driver); err != nil {
		return err
	}
	if s.nodes, err = nodesOf(s.config, s.driver.Name(), s.node); err != nil {
		return err
	}
	all, err := s.newControllers(ctx)
	if err != nil {
		return err
	}
	if s.http.Authorizes() {
		all.checkers = append(all.checkers, s.filter)
	}
	ready := &readiness{reclaimer: all.reclaimer, provisioner: all.provisioner}
	state.Begin(ready.check)
	running.Go(func() { app.ReturnMemory(background, all.reclaimer.WaitSynced) })
	s.leader.Keep = !s.gates.Enabled(releaseLeaseGate)
	s.leader.Settings.Labels = ownLabels(s.leader.Settings.Labels, s.driver.Name())

	elector, err := s.leader.Elector(s.config, s.options.node.lease(leaseName(s.driver.Name(), parseRole(s.role))),
		s.clock)
	if err != nil {
		return err
	}
	err = app.Process[app.Controller]{
		Controllers: all.running, Election: elector, State: state, Grace: s.grace, Checkers: all.checkers,
		Lacking: func(missing []permission.Permission) { ready.update(missing, state) },
	}.Run(ctx, background, running)
	if all.log != nil && all.log.stepsAside(elector != nil, err) {
		s.metrics.stopped.Store(true)
		return all.log.stepAside(ctx, err)
	}
	return err
}

// controllers are the controllers of one process, with their permission checkers.
type controllers struct {
	reclaimer *reclaim.Controller
	// provisioner and log are nil in a dry run.
	provisioner *provision.Controller
	log         *inFlightLog

	running  []app.Controller
	checkers []app.PermissionChecker
}

// add adds a controller that is also a permission checker.
func (c *controllers) add(one interface {
	app.Controller
	app.PermissionChecker
}) {
	c.running, c.checkers = append(c.running, one), append(c.checkers, one)
}

// newControllers creates the controllers that the flags select, without starting them.
func (s *sidecar) newControllers(ctx context.Context) (*controllers, error) {
	var all controllers
	publisher, err := s.newCapacity(ctx)
	if err != nil {
		return nil, err
	}
	settings, err := s.reclaimSettings(ctx)
	if err != nil {
		return nil, err
	}
	if all.log, err = newInFlightLog(s.options, s.acting, s.driver.Name(), s.node,
		settings.Lease); err != nil {
		return nil, err
	}
	if all.log != nil {
		settings.InFlight = all.log
	}
	if publisher != nil {
		settings.Deleted = publisher.Changed
	}
	policy, err := policyOf(s.config, s.driver.Name(), &settings)
	if err != nil {
		return nil, err
	}
	if all.reclaimer, err = reclaim.New(s.acting, s.driver.Name(), s.driver, settings); err != nil {
		return nil, err
	}
	all.add(all.reclaimer)
	if policy != nil {
		all.checkers = append(all.checkers, policy)
	}
	if err := s.addProvisioning(ctx, &all, settings); err != nil {
		return nil, err
	}
	if s.releaseFinalizers {
		all.running = s.releaseControllers(&all)
	}
	if publisher != nil {
		all.add(publisher)
	}
	checker, err := s.newLeakChecker(ctx, all.reclaimer.PVs())
	if err != nil {
		return nil, err
	}
	if checker != nil {
		all.add(checker)
	}
	return &all, nil
}

// reclaimSettings returns the settings of package reclaim that do not depend on other controllers.
func (s *sidecar) reclaimSettings(ctx context.Context) (settings reclaim.Config, err error) {
	settings = s.reclaimConfig(s.driver.Name())
	settings.Events, settings.Metrics, settings.TracerProvider, settings.Node = s.events, s.metrics, s.traces, s.node
	if s.clock != nil {
		settings.Lease = s.clock
	}
	settings.NeverAttached, err = s.neverAttached(ctx)
	return settings, err
}

// addProvisioning adds the provisioner and the sweeper if the flags select them.
func (s *sidecar) addProvisioning(ctx context.Context, all *controllers, settings reclaim.Config) (err error) {
	if all.provisioner, err = s.newProvisioner(ctx, all, settings); err != nil {
		return err
	}
	if all.provisioner != nil {
		all.checkers = append(all.checkers, all.log)
		all.add(all.provisioner)
	}
	sweeper, err := s.newSweeper(all.provisioner)
	if err != nil {
		return err
	}
	if sweeper != nil { // after the provisioner, because only the first message about a permission is logged
		all.add(sweeper)
	}
	return nil
}

// releaseControllers returns the controllers of --release-finalizers, which replace all others.
func (s *sidecar) releaseControllers(all *controllers) []app.Controller {
	sources := func(context.Context) error { return nil }
	if parseRole(s.role) == volume.RoleOwner {
		sources = func(ctx context.Context) error {
			return releaseSources(ctx, s.config, s.driver.Name(), all.log.usesSource, s.stdout)
		}
	}
	return []app.Controller{releasing{
		Controller: all.reclaimer, provisioner: all.provisioner, log: all.log, config: s.acting, driver: s.driver.Name(),
		sources: sources, quiet: s.quietPeriod(), stdout: s.stdout,
	}, all.provisioner}
}

// policyOf lets the reclaimer report PVs that were bound without the finalizer although an admission policy should
// have added it. It returns nil if this program does not add that finalizer itself.
func policyOf(config *rest.Config, driver string, settings *reclaim.Config) (*admission.DriverPolicy, error) {
	if settings.Mode != reclaim.ModeHonor || settings.Role == volume.RoleObserver {
		return nil, nil
	}
	policy, err := admission.NewDriverPolicy(config, driver, settings.Role)
	if err != nil {
		return nil, err
	}
	settings.AdmissionPolicy = policy.Since
	return policy, nil
}

type readiness struct {
	reclaimer   *reclaim.Controller
	provisioner *provision.Controller
	// degraded: the provisioner lacks a permission to list or watch, so its caches are not awaited.
	degraded atomic.Bool
}

func (r *readiness) check() error {
	if !r.reclaimer.Synced() || r.provisioner != nil && !r.degraded.Load() && !r.provisioner.Synced() {
		return errors.New("waiting for the first list from the API server")
	}
	return nil
}

// update records the missing permissions and their effect on readiness.
func (r *readiness) update(missing []permission.Permission, state *health.State) {
	state.Lack(app.BlockingPermissions(missing)...)
	// Provisioning does not start before all its caches are filled, but deletions do not need them.
	r.degraded.Store(slices.ContainsFunc(missing, func(p permission.Permission) bool {
		return p.Verb == "list" || p.Verb == "watch"
	}))
}
