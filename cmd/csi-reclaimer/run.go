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
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/permissions"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/work"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Run is the whole life of the sidecar: until ctx ends, or something is wrong that waiting
// does not mend.
func (o *options) Run(ctx context.Context, stdout io.Writer) error {
	config, err := o.cluster.Config(name)
	if err != nil {
		return err
	}
	// The address is judged before the port is taken, so that a typo shows at once.
	if _, err := csidriver.SocketPath(o.csiAddress); err != nil {
		return fmt.Errorf("--csi-address: %w", err)
	}

	state := health.NewState(func() error { return errors.New("waiting for the CSI driver") })
	rpcs := newRPCMetrics()
	own := prometheus.NewRegistry()
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stopBackground()
	if o.audits() {
		o.http.Handle(auditPath, &o.audit.board)
	}
	if err := o.http.Start(background, &serving, state, own, rpcs); err != nil {
		return err
	}

	traces, stopTraces, err := o.traces.Start(ctx, name, app.Version())
	if err != nil {
		return err
	}
	defer stopTraces()
	clock := o.leader.Clock(o.dryRun)
	acting := cluster.Acting(config, clock)
	driver, err := csidriver.Connect(ctx, o.csiAddress, csidriver.Config{Lease: clock, Timeout: o.timeout, Metrics: rpcs, TracerProvider: traces})
	if err != nil {
		return err
	}
	defer driver.Close()
	rpcs.SetDriverName(driver.Name())
	klog.FromContext(ctx).Info("Connected to the CSI driver", "driver", driver.Name(), "attaches", driver.Attaches(), "role", o.role)
	if err := waitForDeletion(ctx, o, driver, state); err != nil {
		return err
	}
	node, err := o.node.node(ctx, driver)
	if err != nil {
		return err
	}
	events, stopEvents, err := cluster.Recorder(background, config, clock, name+"/"+driver.Name())
	if err != nil {
		return err
	}
	defer stopEvents()
	where, err := placesOf(config, driver.Name(), node)
	if err != nil {
		return err
	}
	publisher, err := newCapacity(ctx, o, acting, driver, where, own)
	if err != nil {
		return err
	}
	settings := o.reclaimConfig(driver.Name())
	settings.Events, settings.Metrics, settings.TracerProvider, settings.Node = events, own, traces, node
	if clock != nil {
		settings.Lease = clock
	}
	log, err := newInFlightLog(o, acting, driver.Name(), settings.Lease)
	if err != nil {
		return err
	}
	if log != nil {
		settings.InFlight = settledPVs{log, node}
	}
	if publisher != nil {
		settings.Deleted = publisher.Changed
	}
	if settings.NeverAttached, err = neverAttached(ctx, config, driver); err != nil {
		return err
	}
	policy, err := policyOf(config, driver.Name(), &settings)
	if err != nil {
		return err
	}
	reclaimer, err := reclaim.New(acting, driver.Name(), driver, settings)
	if err != nil {
		return err
	}
	provisioner, err := newProvisioner(ctx, o, acting, driver, node, where, provision.Config{Log: log, Lease: settings.Lease, Volumes: reclaimer.PVs(), Changed: settings.Deleted, Events: events, Metrics: own})
	if err != nil {
		return err
	}
	sweeper, err := newSweeper(o, acting, driver, provisioner)
	if err != nil {
		return err
	}
	auditor, err := newAuditor(ctx, o, acting, driver, leaks.Config{Volumes: reclaimer.PVs(), Events: events, Metrics: own})
	if err != nil {
		return err
	}
	controllers, rights := []work.Controller{reclaimer}, []permissions.Asker{reclaimer}
	if policy != nil {
		rights = append(rights, policy)
	}
	if provisioner != nil {
		controllers, rights = append(controllers, provisioner), append(rights, log, provisioner)
	}
	if sweeper != nil { // of two sentences about one right the first is told
		controllers, rights = append(controllers, sweeper), append(rights, sweeper)
	}
	if o.releaseFinalizers {
		sources := func(context.Context) error { return nil }
		if parseRole(o.role) == volume.RoleOwner {
			sources = func(ctx context.Context) error { return releaseSources(ctx, config, driver.Name(), stdout) }
		}
		controllers = []work.Controller{releasing{reclaimer, provisioner, log, acting, driver.Name(), sources, o.quietPeriod(), stdout}, provisioner}
	}
	if publisher != nil {
		controllers, rights = append(controllers, publisher), append(rights, publisher)
	}
	if auditor != nil {
		controllers, rights = append(controllers, auditor), append(rights, auditor)
	}
	ready := &readiness{reclaimer: reclaimer, provisioner: provisioner}
	state.Begin(ready.begun)
	serving.Go(func() { app.ReturnMemory(background, reclaimer.WaitSynced) })
	serving.Go(func() {
		permissions.Watch(background, rights, func(missing []access.Permission) { ready.lack(missing, state) })
	})
	o.leader.Keep = !o.gates.Enabled(releaseLeaseGate)
	elector, err := o.leader.Elector(config, o.node.lease(leaseName(driver.Name(), parseRole(o.role))), clock)
	if err != nil {
		return err
	}
	state.Watch(elector.Check)
	return work.Run(ctx, controllers, o.grace, elector)
}

// policyOf has it noticed that PVs are bound without the finalizer although an admission policy should add it, where this
// program adds it as well. It returns nil where it does not.
func policyOf(config *rest.Config, driver string, settings *reclaim.Config) (*admission.DriverPolicy, error) {
	if settings.Mode != reclaim.ModeHonor || settings.Role == volume.RoleObserver {
		return nil, nil //nolint:nilnil // no policy to look at is an answer of its own here
	}
	policy, err := admission.NewDriverPolicy(config, driver, settings.Role)
	if err != nil {
		return nil, err
	}
	settings.AdmissionPolicy = policy.Since
	return policy, nil
}

// readiness tells whether the first look at the cluster is done.
type readiness struct {
	reclaimer *reclaim.Reclaimer
	// provisioner is nil where nothing provisions.
	provisioner *provision.Provisioner
	// limps: provisioning may not read what it has to, so its caches do not count.
	limps atomic.Bool
}

func (r *readiness) begun() error {
	if !r.reclaimer.Synced() || r.provisioner != nil && !r.limps.Load() && !r.provisioner.Synced() {
		return errors.New("waiting for the first list from the API server")
	}
	return nil
}

// lack notes which rights are missing.
func (r *readiness) lack(missing []access.Permission, state *health.State) {
	state.Lack(permissions.Unsafe(missing)...)
	// Without all it watches provisioning never begins, which is no reason not to delete.
	r.limps.Store(slices.ContainsFunc(missing, func(r access.Permission) bool { return r.Verb == "list" || r.Verb == "watch" }))
}
