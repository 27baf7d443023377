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
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/preflight"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/program"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/serve"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/work"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/audit"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
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

	state := serve.NewState(func() error { return errors.New("waiting for the CSI driver") })
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

	traces, stopTraces, err := o.traces.Start(ctx, name, program.Version())
	if err != nil {
		return err
	}
	defer stopTraces()
	driver, err := csidriver.Connect(ctx, o.csiAddress, csidriver.Config{Timeout: o.timeout, Metrics: rpcs, TracerProvider: traces})
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
	events, stopEvents, err := cluster.Recorder(background, config, name+"/"+driver.Name())
	if err != nil {
		return err
	}
	defer stopEvents()
	where, err := placesOf(config, driver.Name(), node)
	if err != nil {
		return err
	}
	publisher, err := newCapacity(ctx, o, config, driver, where, own)
	if err != nil {
		return err
	}
	settings := o.reclaimConfig(driver.Name())
	settings.Events, settings.Metrics, settings.TracerProvider, settings.Node = events, own, traces, node
	if publisher != nil {
		settings.Deleted = publisher.Changed
	}
	if settings.NeverAttached, err = neverAttached(ctx, config, driver); err != nil {
		return err
	}
	reclaimer, err := reclaim.New(config, driver.Name(), driver, settings)
	if err != nil {
		return err
	}
	provisioner, err := newProvisioner(ctx, o, config, driver, node, where, provision.Config{Volumes: reclaimer.PVs(), Changed: settings.Deleted, Events: events, Metrics: own})
	if err != nil {
		return err
	}
	auditor, err := newAuditor(ctx, o, config, driver, audit.Config{Volumes: reclaimer.PVs(), Events: events, Metrics: own})
	if err != nil {
		return err
	}
	controllers, rights := []work.Controller{reclaimer}, []preflight.Asker{reclaimer}
	if o.releaseFinalizers {
		controllers = []work.Controller{releasing{reclaimer, stdout}}
	}
	if provisioner != nil {
		controllers, rights = append(controllers, provisioner), append(rights, provisioner)
	}
	if publisher != nil {
		controllers, rights = append(controllers, publisher), append(rights, publisher)
	}
	if auditor != nil {
		controllers, rights = append(controllers, auditor), append(rights, auditor)
	}
	ready := &readiness{reclaimer: reclaimer, provisioner: provisioner}
	state.Begin(ready.begun)
	serving.Go(func() { program.ReturnMemory(background, reclaimer.WaitSynced) })
	serving.Go(func() {
		preflight.Watch(background, rights, func(missing []reclaim.Right) { ready.lack(missing, state) })
	})
	o.leader.Keep = !o.gates.Enabled(releaseLeaseGate)
	elector, err := o.leader.Elector(config, o.node.lease(leaseName(driver.Name(), parseRole(o.role))), o.dryRun)
	if err != nil {
		return err
	}
	state.Watch(elector.Check)
	return work.Run(ctx, controllers, o.grace, elector)
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
func (r *readiness) lack(missing []reclaim.Right, state *serve.State) {
	state.Lack(preflight.Unsafe(missing)...)
	// Without all it watches provisioning never begins, which is no reason not to delete.
	r.limps.Store(slices.ContainsFunc(missing, func(r reclaim.Right) bool { return r.Verb == "list" || r.Verb == "watch" }))
}

// releasing is a Reclaimer that only takes its finalizers off.
type releasing struct {
	*reclaim.Reclaimer
	stdout io.Writer
}

// Run does so, and prints what came of it.
func (r releasing) Run(ctx context.Context) error { return release(ctx, r.Reclaimer, r.stdout) }

// release takes the finalizers off and prints what came of it.
func release(ctx context.Context, r *reclaim.Reclaimer, stdout io.Writer) error {
	done, err := r.Release(ctx)
	for _, name := range done.Abandoned {
		if _, err := fmt.Fprintf(stdout, "PV %s was being deleted: its volume stays in the storage system\n", name); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(stdout, "%d PVs were released\n", done.PVs); err != nil {
		return err
	}
	if errors.Is(err, reclaim.ErrPutBack) {
		return fmt.Errorf("%w; remove that policy, or this driver from its parameters, and run again", err)
	}
	return err
}
