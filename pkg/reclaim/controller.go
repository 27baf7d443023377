package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// apiTimeout bounds one call to the API server.
const apiTimeout = 30 * time.Second

// Controller deletes the volumes of one driver's PVs when their reclaim policy says so.
type Controller struct {
	cfg     Config
	driver  string
	deleter Deleter
	cluster cluster
	// authorization reports what this program may do.
	authorization authorizationv1.AuthorizationV1Interface
	recorder      *events.Recorder[Reason]
	metrics       *metrics
	traces        *traces
	pace          *kube.Pace
	followers     followers
	// admissions is nil where nobody asks whether an admission policy protects PVs.
	admissions *admissions

	// mu guards engine, whose Rules never change. While it is held nobody is called but the caches.
	mu     sync.Mutex
	engine *reclaim.Engine
	// tripped holds a token when the brake has turned on.
	tripped chan struct{}
	// inHand counts the sessions that ask something.
	inHand atomic.Int32
	// began is when Run did.
	began time.Time

	pvCache         *kube.Cache[*volume.PV]
	attachmentCache *kube.Cache[attachment]
	// pvs and attachments are what is read of the caches.
	pvs         pvReader
	attachments versioned

	base                   *controller.Controller
	reclaiming, protecting *controller.Queue[string]
	// enqueue has a PV decided on; it does not block.
	enqueue func(pv string)
}

// versioned is a cache that can be behind the API server.
type versioned interface {
	Reached(version string) bool
}

// pvReader is what is read of the cache of PVs.
type pvReader interface {
	reclaim.PVs
	versioned
}

// New returns a Controller for the PVs of the driver with this name (spec.csi.driver), on
// the cluster that config describes. config is copied; a QPS of 0 means that nothing but
// the number of workers limits the calls. Nothing is started: see Run.
func New(config *rest.Config, driver string, deleter Deleter, cfg Config) (*Controller, error) {
	switch {
	case config == nil:
		return nil, errors.New("create a reclaimer: no cluster is given")
	case driver == "":
		return nil, errors.New("create a reclaimer: the driver's name is empty")
	case deleter == nil:
		return nil, errors.New("create a reclaimer: no Deleter is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a reclaimer: %w", err)
	}
	cfg = cfg.withDefaults()
	r := &Controller{
		cfg: cfg, driver: driver, deleter: deleter, metrics: newMetrics(driver),
		traces:  newTraces(cfg.TracerProvider, driver),
		tripped: make(chan struct{}, 1),
	}
	r.recorder = events.NewRecorder(events.Config[Reason]{
		Events: cfg.Events, Counter: r.metrics.reported, Leads: func() bool { return r.mayAct() == nil }, Observe: traceWait,
	})
	if cfg.AdmissionPolicy != nil {
		r.admissions = newAdmissions()
	}
	if err := r.connect(config); err != nil {
		return nil, err
	}
	r.pvs, r.attachments = r.pvCache, r.attachmentCache
	breaker := reclaim.NewBreaker(cfg.Brake.Deletions, cfg.Brake.Window)
	r.engine = reclaim.New(cfg.rules(driver), breaker, r.pvs)
	r.engine.DryRun = cfg.DryRun
	if err := r.makeQueues(); err != nil {
		return nil, err
	}
	if cfg.InFlight != nil {
		cfg.InFlight.Follow(r.enqueue)
	}
	waiting := r.recorder.WaitingMetric("csi_reclaimer_waiting_pvs",
		"PVs that are to be deleted and have to wait, by reason.", prometheus.Labels{"driver_name": driver})
	if err := events.Register(cfg.Metrics, append(r.metrics.all(), newInventory(r), waiting)...); err != nil {
		return nil, err
	}
	return r, nil
}

// connect makes the clients and the caches.
func (r *Controller) connect(config *rest.Config) error {
	r.pace = kube.NewPace(r.cfg.ProtectWorkers, func() bool { return r.inHand.Load() > 0 }, r.cfg.Clock)
	clients, err := kube.NewClients(config)
	if err != nil {
		return err
	}
	background := rest.CopyConfig(config)
	background.Wrap(r.pace.Transport)
	slow, err := kube.NewClients(background)
	if err != nil {
		return err
	}
	r.authorization = clients.Authorization
	r.cluster = apiServer{clients: clients, background: slow, node: r.cfg.Node, timeout: apiTimeout}
	r.watchCaches(clients)
	return nil
}

func (r *Controller) makeQueues() (err error) {
	caches := []controller.Cache{r.pvCache}
	if !r.cfg.NeverAttached {
		caches = append(caches, r.attachmentCache)
	}
	r.base = controller.NewController("reclaim", caches...)
	config := controller.Config{Name: "reclaim", Workers: r.cfg.Workers, Clock: r.cfg.Clock}
	if r.reclaiming, err = controller.NewQueue(r.base, config, r.reconcile); err != nil {
		return err
	}
	config.Name, config.Workers = "protect", r.cfg.ProtectWorkers
	if r.protecting, err = controller.NewQueue(r.base, config, r.protect); err != nil {
		return err
	}
	r.enqueue = r.reclaiming.Enqueue
	return nil
}

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A
// replica that waits to lead calls it, so that it can act at once when it does. It changes
// nothing in the cluster.
func (r *Controller) Watch(ctx context.Context) { r.base.Watch(ctx) }

// Run reclaims until ctx ends, which cuts off calls in flight, or until Stop, which lets
// them end; it returns when everything it started has ended. It is called once, by the one
// replica that leads: where leader election is used, ctx is to end with the lease.
//
// With Config.Lease, Run ends by itself when the Lease has run out, with an error that wraps
// lease.ErrExpired: what this process remembers counts for nothing then.
//
// Run watches by itself unless Watch already does; then it needs Watch to continue.
func (r *Controller) Run(ctx context.Context) error {
	ctx, stop := leadership.WhileHeld(withoutSpan(ctx), r.cfg.Lease, r.cfg.Clock)
	defer stop()
	r.lead(true)
	defer r.lead(false)
	also := []func(context.Context){r.firstPass}
	if r.cfg.Brake.Deletions > 0 {
		also = append(also, r.watchBrake)
	}
	if r.admissions != nil {
		also = append(also, r.watchAdmission)
	}
	if err := r.base.Run(ctx, also...); err != nil {
		return err
	}
	if err := context.Cause(ctx); errors.Is(err, leadership.ErrExpired) {
		return fmt.Errorf("reclaim: %w", err)
	}
	return nil
}

// firstPass enqueues every PV.
func (r *Controller) firstPass(ctx context.Context) {
	klog.FromContext(ctx).Info("Reclaiming", "driver", r.driver, "role", r.cfg.Role, "workers", r.cfg.Workers, "dryRun",
		r.cfg.DryRun)
	r.reclaiming.AddAll(ctx, r.names())
	if r.waitLog(ctx) {
		r.reclaiming.AddAll(ctx, r.names()) // those that waited for the log
	}
}

// logPoll is how often waitLog checks whether the in-flight log was read.
const logPoll = 50 * time.Millisecond

// waitLog waits until the in-flight log was read, and reports whether it had to.
func (r *Controller) waitLog(ctx context.Context) (waited bool) {
	if r.cfg.InFlight == nil {
		return false
	}
	for {
		if state, _ := r.cfg.InFlight.InFlight(""); state != volume.InFlightUnknown {
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

// lead begins and ends the time in which what happens concerns this replica.
func (r *Controller) lead(leading bool) {
	if leading {
		r.began = r.cfg.Clock.Now()
	}
	r.traces.lead(leading)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine.Lead(leading)
}

func (r *Controller) leads() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Leading
}

// WaitSynced waits until the caches hold what the API server had when they were started: nothing
// is decided from less. An error means that ctx ended before.
func (r *Controller) WaitSynced(ctx context.Context) error { return r.base.WaitSynced(ctx) }

// Stop lets the deletions under way end and begins no more; Run then returns. It does not
// wait.
func (r *Controller) Stop() { r.base.Stop() }

// Synced reports whether WaitSynced would return at once.
func (r *Controller) Synced() bool { return r.base.Synced() }
