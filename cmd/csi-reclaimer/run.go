package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/preflight"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/program"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/serve"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/work"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admit"
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
	// The process's start time is in the legacy registry already, and twice is an error.
	rpcs := csimetrics.NewCSIMetricsManagerWithOptions("", csimetrics.WithProcessStartTime(false))
	own := prometheus.NewRegistry()
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stopBackground()
	if o.audits() {
		o.http.Handle(auditPath, &o.audit.board)
	}
	if err := o.http.Start(background, &serving, state, own, rpcs.GetRegistry()); err != nil {
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
	policy, err := policyOf(config, driver.Name(), &settings)
	if err != nil {
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
	if policy != nil {
		rights = append(rights, policy)
	}
	if o.releaseFinalizers {
		controllers = []work.Controller{releasing{reclaimer, config, driver.Name(), stdout}}
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
	elector, err := o.leader.Elector(config, o.node.lease(leaseName(driver.Name(), parseRole(o.role))), o.dryRun)
	if err != nil {
		return err
	}
	state.Watch(elector.Check)
	return work.Run(ctx, controllers, o.grace, elector)
}

// policyOf has it noticed that PVs are bound without the finalizer although an admission policy should add it, where this
// program adds it as well. It returns nil where it does not.
func policyOf(config *rest.Config, driver string, settings *reclaim.Config) (*admit.DriverPolicy, error) {
	if settings.Mode != reclaim.ModeHonor || settings.Role == reclaim.RoleObserver {
		return nil, nil //nolint:nilnil // no policy to look at is an answer of its own here
	}
	policy, err := admit.NewDriverPolicy(config, driver, settings.Role)
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
func (r *readiness) lack(missing []reclaim.Right, state *serve.State) {
	state.Lack(preflight.Unsafe(missing)...)
	// Without all it watches provisioning never begins, which is no reason not to delete.
	r.limps.Store(slices.ContainsFunc(missing, func(r reclaim.Right) bool { return r.Verb == "list" || r.Verb == "watch" }))
}

// releasing is a Reclaimer that only removes its finalizers.
type releasing struct {
	*reclaim.Reclaimer
	config *rest.Config
	driver string
	stdout io.Writer
}

// Run does so, and prints what came of it.
func (r releasing) Run(ctx context.Context) error {
	if err := unlist(ctx, r.config, r.driver, r.stdout); err != nil {
		return err
	}
	return release(ctx, r.Reclaimer, r.stdout)
}

// unlist removes the driver from the admission policies and webhooks of csi-reclaimer that list it, for each finalizer
// would come back in the write that removes it, and waits until that is in force. Where they may not be read the
// release itself shows whether finalizers come back.
func unlist(ctx context.Context, config *rest.Config, driver string, stdout io.Writer) error {
	drivers := []string{driver}
	done, err := admit.Unlist(ctx, config, drivers)
	for _, from := range done.From {
		if _, err := fmt.Fprintf(stdout, "%s was removed from %s\n", driver, from); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, admit.ErrStillListed):
		return fmt.Errorf("%w; remove it by kubectl reclaim release --driver=%s, or volume-guard --release-finalizers --release-drivers=%s", err, driver, driver)
	case apierrors.IsForbidden(err):
		klog.FromContext(ctx).V(2).Info("Whether an admission policy lists the driver may not be read", "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("release finalizers: %w", err)
	case len(done.From) == 0:
		return nil
	}
	return admit.AwaitUnlisted(ctx, config, drivers)
}

// release removes the finalizers and prints what came of it.
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
		return fmt.Errorf("%w; remove that policy, or this driver from it, and run again", err)
	}
	return err
}
