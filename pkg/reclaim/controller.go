package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// apiTimeout bounds one call to the API server.
const apiTimeout = 30 * time.Second

// Reclaimer deletes the volumes of one driver's PVs when their reclaim policy says so.
type Reclaimer struct {
	cfg     Config
	driver  string
	deleter Deleter
	cluster cluster
	// authorization tells what this program may do.
	authorization authorizationv1.AuthorizationV1Interface
	observer      *observer
	reports       *reports
	metrics       *metrics
	traces        *traces
	brake         *brake
	deleting      *inFlight
	pace          *kube.Pace
	// inHand counts the runs that are past the first look.
	inHand atomic.Int32
	// began is when Run did.
	began time.Time

	reclaiming *controller.Loop[string]
	protecting *controller.Loop[string]
	// protectSoon leaves a PV to the loop of first-time protection.
	protectSoon func(pv string)

	watching atomic.Bool
	// awake: Run has begun to work on PVs.
	awake atomic.Bool
}

// New returns a Reclaimer for the PVs of the driver with this name (spec.csi.driver), on
// the cluster that config describes. config is copied; a QPS of 0 means that nothing but
// the number of workers limits the calls. Nothing is started: see Run.
func New(config *rest.Config, driver string, deleter Deleter, cfg Config) (*Reclaimer, error) {
	switch {
	case config == nil:
		return nil, errors.New("make a reclaimer: no cluster is given")
	case driver == "":
		return nil, errors.New("make a reclaimer: the driver's name is empty")
	case deleter == nil:
		return nil, errors.New("make a reclaimer: nothing that deletes volumes is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make a reclaimer: %w", err)
	}
	cfg = cfg.withDefaults()
	r := &Reclaimer{cfg: cfg, driver: driver, deleter: deleter, metrics: newMetrics(driver), traces: newTraces(cfg.TracerProvider, driver), deleting: newInFlight()}
	r.pace = kube.NewPace(cfg.ProtectWorkers, func() bool { return r.inHand.Load() > 0 }, cfg.Clock)
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	background := rest.CopyConfig(config)
	background.Wrap(r.pace.Transport)
	slow, err := kube.NewClients(background)
	if err != nil {
		return nil, err
	}
	r.authorization = clients.Authorization
	r.cluster = apiServer{clients: clients, background: slow, node: cfg.Node, timeout: apiTimeout}
	r.reports = newReports(cfg.Events, func(reason Reason) { r.metrics.told.WithLabelValues(string(reason)).Inc() })
	r.reports.lease = cfg.Lease
	r.brake = newBrake(cfg.Brake, cfg.Clock)
	if r.reclaiming, err = controller.New(controller.Config{Name: "reclaim", Workers: cfg.Workers, Clock: cfg.Clock}, r.reclaim); err != nil {
		return nil, err
	}
	if r.protecting, err = controller.New(controller.Config{Name: "protect", Workers: cfg.ProtectWorkers, Clock: cfg.Clock}, r.protect); err != nil {
		return nil, err
	}
	r.protectSoon = r.protecting.Add
	r.observer = newObserver(cfg.rules(driver), r.brake, cfg.Clock, r.wake, r.reports.Forget)
	r.observer.node, r.observer.traces, r.observer.lease = cfg.Node, r.traces, cfg.Lease
	if cfg.InFlight != nil {
		r.observer.inFlight = cfg.InFlight
		cfg.InFlight.Follow(r.wake)
	}
	if cfg.AdmissionPolicy != nil {
		r.observer.admissions = newAdmissions()
	}
	r.observer.watch(clients)
	if err := register(cfg.Metrics, append(r.metrics.all(), newInventory(r.observer, r.reports))...); err != nil {
		return nil, err
	}
	return r, nil
}

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A
// replica that waits to lead calls it, so that it can act at once when it does. It changes
// nothing in the cluster.
func (r *Reclaimer) Watch(ctx context.Context) {
	if !r.watching.CompareAndSwap(false, true) {
		// Somebody else watches already, and for longer than this caller may.
		<-ctx.Done()
		return
	}
	var watches sync.WaitGroup
	watches.Go(func() { r.observer.pvWatch.Run(ctx) })
	if !r.cfg.NeverAttached {
		watches.Go(func() { r.observer.attachmentWatch.Run(ctx) })
	}
	watches.Wait()
}

// Run reclaims until ctx ends, which cuts off calls in flight, or until Stop, which lets
// them end; it returns when everything it started has ended. It is called once, by the one
// replica that leads: where leader election is used, ctx is to end with the lease.
//
// With Config.Lease, Run ends by itself when the Lease has run out, with an error that wraps
// ErrLeaseExpired: what this process remembers counts for nothing then.
//
// Run watches by itself unless Watch already does; then it needs Watch to go on.
func (r *Reclaimer) Run(ctx context.Context) error {
	ctx, stop := whileHeld(withoutSpan(ctx), r.cfg.Lease, r.cfg.Clock)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { r.Watch(ctx) })

	r.lead(true)
	defer r.lead(false)
	if err := r.WaitSynced(ctx); err != nil {
		return err
	}
	var loops sync.WaitGroup
	if r.cfg.Brake.Deletions > 0 {
		all.Go(func() { r.keepBrake(ctx) })
	}
	if r.observer.admissions != nil {
		all.Go(func() { r.watchAdmission(ctx) })
	}
	r.awake.Store(true)
	defer r.awake.Store(false)
	all.Go(func() {
		r.reclaiming.AddAll(ctx, r.observer.names())
		if r.waitLog(ctx) {
			r.reclaiming.AddAll(ctx, r.observer.names()) // those that waited for the log
		}
	})
	loops.Go(func() { r.reclaiming.Run(ctx) })
	loops.Go(func() { r.protecting.Run(ctx) })
	klog.FromContext(ctx).Info("Reclaiming", "driver", r.driver, "role", r.cfg.Role, "workers", r.cfg.Workers, "dryRun", r.cfg.DryRun)
	loops.Wait()
	if err := context.Cause(ctx); errors.Is(err, ErrLeaseExpired) {
		return fmt.Errorf("reclaim: %w", err)
	}
	return nil
}

// logPoll is how often it is looked whether the in-flight log was read.
const logPoll = 50 * time.Millisecond

// waitLog waits until the in-flight log was read, and tells whether it was not before.
func (r *Reclaimer) waitLog(ctx context.Context) (waited bool) {
	if r.cfg.InFlight == nil {
		return false
	}
	for {
		if _, known := r.cfg.InFlight.InFlight(""); known {
			return waited
		}
		waited = true
		select {
		case <-ctx.Done():
			return false
		case <-r.cfg.Clock.After(logPoll):
		}
	}
}

// lead begins and ends the time in which what happens is this replica's business.
func (r *Reclaimer) lead(leading bool) {
	if leading {
		r.began = r.cfg.Clock.Now()
	} else {
		r.observer.notes.forgetEnds()
	}
	r.brake.lead(leading)
	r.traces.lead(leading)
	r.observer.leading.Store(leading)
}

// WaitSynced waits until the caches hold what the API server had when they were started: nothing
// is decided from less. An error means that ctx ended before.
func (r *Reclaimer) WaitSynced(ctx context.Context) error {
	checks := []cache.DoneChecker{r.observer.pvWatch.Sync()}
	if !r.cfg.NeverAttached {
		checks = append(checks, r.observer.attachmentWatch.Sync())
	}
	if !cache.WaitFor(ctx, "the first list from the API server", checks...) {
		return fmt.Errorf("wait for the first list of PVs and VolumeAttachments: %w", context.Cause(ctx))
	}
	return nil
}

// wake has a PV decided on. Before Run works nobody would: a replica that waits to lead would
// only pile up names. What is missed by that, Run makes up for by looking at every PV.
func (r *Reclaimer) wake(pv string) {
	if r.awake.Load() {
		r.reclaiming.Add(pv)
	}
}

// Stop lets the deletions in hand end and begins no more; Run then returns. It does not
// wait.
func (r *Reclaimer) Stop() {
	r.reclaiming.Stop()
	r.protecting.Stop()
}

// Synced tells whether WaitSynced would return at once.
func (r *Reclaimer) Synced() bool {
	return r.observer.pvWatch.Synced() && (r.cfg.NeverAttached || r.observer.attachmentWatch.Synced())
}

// The delays after a try that failed, by what the failure means.

// soon is for what ends by itself in a moment.
func (r *Reclaimer) soon() controller.Next {
	return controller.Next{Backoff: controller.Backoff{First: 200 * time.Millisecond, Max: 5 * time.Second}}
}

func (r *Reclaimer) usual() controller.Next {
	return controller.Next{Backoff: controller.Backoff{First: r.cfg.RetryStart, Max: r.cfg.RetryMax}}
}

// slow is for what a person has to mend first.
func (r *Reclaimer) slow() controller.Next {
	return controller.Next{Backoff: controller.Backoff{First: min(10*r.cfg.RetryStart, r.cfg.RetryMax), Max: r.cfg.RetryMax}}
}
