package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/spans"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Controller deletes the volumes of one driver's PVs when their reclaim policy says so.
type Controller struct {
	cfg     Config
	driver  string
	deleter Deleter
	cluster cluster
	// authorization reviews the permissions of this program.
	authorization authorizationv1.AuthorizationV1Interface
	recorder      *events.Recorder[Reason]
	metrics       *metrics
	traces        *traces
	pace          *kube.Pace
	// followers and listFollowers are the callbacks of PVs.Follow and PVs.FollowLists.
	followers     followers[func(volume.PV)]
	listFollowers followers[func()]
	// admissions is nil without Config.AdmissionPolicy.
	admissions *admissions

	// mu guards engine, except for its Rules, which never change, and began. Only the caches are called while it is held.
	mu     sync.Mutex
	engine *reclaim.Engine
	// began is when this replica began to lead.
	began time.Time
	// tripped holds a token after the brake has turned on.
	tripped    chan struct{}
	brakeReads brakeReads
	// inHand counts the sessions that make calls.
	inHand atomic.Int32
	// ran reports that Run was called.
	ran atomic.Bool

	pvCache         *kube.Cache[*volume.PV]
	attachmentCache *kube.Cache[string]
	// pvs and attachments are the caches as the decisions read them; tests replace them.
	pvs         pvReader
	attachments versioned
	// awaited has the versions of attachments that PVs wait for, and awaitedGone the versions of pvs for PVs that are
	// gone.
	awaited, awaitedGone *awaited

	base                   *controller.Controller
	reclaiming, protecting *controller.Queue[string]
	// enqueue adds a PV to the queue without blocking.
	enqueue func(pv string)
}

// versioned is a cache that may lag behind the API server.
type versioned interface {
	Reached(version string) bool
	// Len returns the number of objects in the cache.
	Len() int
}

type pvReader interface {
	reclaim.PVs
	versioned
}

// New returns a Controller for the PVs of the driver with this name (spec.csi.driver), on the cluster that config
// describes; [Controller.Run] starts it. New copies config; with a QPS of 0, only the number of workers limits the
// calls.
func New(config *rest.Config, driver string, deleter Deleter, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a reclaimer: nil rest.Config")
	}
	return newController(driver, deleter, cfg, func(pace *kube.Pace) (clients, background kube.Clients, err error) {
		if clients, err = kube.NewClients(config); err != nil {
			return clients, background, err
		}
		slow := rest.CopyConfig(config)
		slow.Wrap(pace.Transport)
		background, err = kube.NewClients(slow)
		return clients, background, err
	})
}

// NewForClient is New with a client that the caller has made, such as a fake clientset in a test. All calls share its
// limits, and the writes that protect PVs do not slow down when the API server answers 429.
func NewForClient(client kubernetes.Interface, driver string, deleter Deleter, cfg Config) (*Controller, error) {
	if client == nil {
		return nil, errors.New("create a reclaimer: nil client")
	}
	clients := kube.ClientsOf(client)
	return newController(driver, deleter, cfg, func(*kube.Pace) (_, _ kube.Clients, err error) {
		return clients, clients, nil
	})
}

// newController makes a Controller whose clients connect returns: the ones of deletions, and the ones of background
// work, which obey the pace.
func newController(driver string, deleter Deleter, cfg Config,
	connect func(*kube.Pace) (clients, background kube.Clients, err error)) (*Controller, error) {
	switch {
	case driver == "":
		return nil, errors.New("create a reclaimer: the driver's name is empty")
	case deleter == nil:
		return nil, errors.New("create a reclaimer: nil Deleter")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a reclaimer: %w", err)
	}
	cfg = cfg.withDefaults()
	r := &Controller{
		cfg: cfg, driver: driver, deleter: deleter, metrics: newMetrics(driver),
		traces:  newTraces(cfg.TracerProvider, driver),
		tripped: make(chan struct{}, 1), brakeReads: brakeReads{turn: make(chan struct{}, 1)},
		awaited: newAwaited(cfg.Clock), awaitedGone: newAwaited(cfg.Clock),
	}
	r.recorder = events.NewRecorder(events.Config[Reason]{
		Events: cfg.Events, Counter: r.metrics.reported, Leads: func() bool { return r.mayAct() == nil }, Observe: traceWait,
	})
	if cfg.AdmissionPolicy != nil {
		r.admissions = newAdmissions()
	}
	r.pace = kube.NewPace(cfg.ProtectWorkers, func() bool { return r.inHand.Load() > 0 }, cfg.Clock)
	clients, background, err := connect(r.pace)
	if err != nil {
		return nil, err
	}
	r.authorization = clients.Authorization
	r.cluster = apiServer{clients: clients, background: background, node: cfg.Node}
	r.watchCaches(clients)
	r.pvs, r.attachments = r.pvCache, r.attachmentCache
	breaker := reclaim.NewBreaker(cfg.Brake.Deletions, cfg.Brake.Window)
	r.engine = reclaim.New(cfg.rules(driver), breaker, r.pvs)
	r.engine.DryRun = cfg.DryRun
	r.makeQueues()
	waiting := r.recorder.WaitingMetric("csi_reclaimer_waiting_pvs",
		"PVs whose deletion waits, by reason.", prometheus.Labels{"driver_name": driver})
	if err := events.Register(cfg.Metrics, append(r.metrics.all(), r.inventory(), waiting)...); err != nil {
		r.base.Stop()
		return nil, err
	}
	if cfg.InFlight != nil {
		cfg.InFlight.Follow(r.settled)
	}
	return r, nil
}

func (r *Controller) makeQueues() {
	caches := []controller.Cache{r.pvCache}
	if !r.cfg.NeverAttached {
		caches = append(caches, r.attachmentCache)
	}
	r.base = controller.NewController("reclaim", caches...)
	controller.Begin(r.base, r.firstPass)
	if r.cfg.Brake.Deletions > 0 {
		controller.Begin(r.base, r.watchBrake)
	}
	if r.admissions != nil {
		controller.Begin(r.base, r.watchAdmission)
	}
	config := controller.Config{Name: "reclaim", Workers: r.cfg.Workers, Clock: r.cfg.Clock}
	r.reclaiming = controller.NewQueue(r.base, config, r.traced)
	r.reclaiming.LimitSlow(r.namespaceOf)
	config.Name, config.Workers = "protect", r.cfg.ProtectWorkers
	r.protecting = controller.NewQueue(r.base, config, r.protect)
	r.enqueue = r.reclaiming.Enqueue
}

// namespaceOf returns the namespace of a PV's claim, empty for a PV that is gone or has none.
func (r *Controller) namespaceOf(pv string) string {
	if now, found := r.pvs.Get(pv); found {
		return now.Claim.Namespace
	}
	return ""
}

// Watch keeps the caches up to date until ctx ends, returns when it has stopped, and changes nothing in the cluster. A
// replica that waits to lead calls it, so that it can act as soon as it leads.
func (r *Controller) Watch(ctx context.Context) { r.base.Watch(ctx) }

// Run reclaims until ctx ends, which cuts off calls in flight, or until Stop, which lets them end. It returns when
// every goroutine that it started has ended. Only the leading replica calls it, and only once, because a later call
// returns an error at once; with leader election, ctx must end with the lease.
//
// With Config.Lease, Run ends by itself when the Lease has run out, with an error that wraps leadership.ErrExpired:
// the memory of this process is no longer valid then.
//
// Run watches by itself unless Watch already does; then Watch must continue.
func (r *Controller) Run(ctx context.Context) error {
	if err := controller.Once(&r.ran); err != nil {
		return fmt.Errorf("reclaim: %w", err)
	}
	ctx, stop := leadership.WhileHeld(spans.Without(ctx), r.cfg.Lease, r.cfg.Clock)
	defer stop()
	r.lead(true)
	defer r.lead(false)
	if err := r.base.Run(ctx); err != nil {
		return err
	}
	if err := context.Cause(ctx); errors.Is(err, leadership.ErrExpired) {
		return fmt.Errorf("reclaim: %w", err)
	}
	return nil
}

// firstPass enqueues every PV, and once more when the in-flight log has been read.
func (r *Controller) firstPass(ctx context.Context) {
	klog.FromContext(ctx).Info("Reclaiming", "driver", r.driver, "role", r.cfg.Role, "workers", r.cfg.Workers, "dryRun",
		r.cfg.DryRun)
	r.reclaiming.AddAll(ctx, r.names())
	if r.waitLog(ctx) {
		r.reclaiming.AddAll(ctx, r.names()) // some of them waited for the log
	}
}

// logPoll is the interval at which waitLog checks the in-flight log.
const logPoll = 50 * time.Millisecond

// waitLog waits until the in-flight log has been read, and reports whether it had to wait.
func (r *Controller) waitLog(ctx context.Context) (waited bool) {
	for r.logUnread() {
		if waited = true; !controller.Pause(ctx, r.cfg.Clock, logPoll) {
			return false
		}
	}
	return waited
}

// logUnread reports whether the Controller has an in-flight log that has not been read.
func (r *Controller) logUnread() bool {
	if r.cfg.InFlight == nil {
		return false
	}
	state, _ := r.cfg.InFlight.InFlight("")
	return state == volume.InFlightUnknown
}

// lead begins and ends this replica's term as leader.
func (r *Controller) lead(leading bool) {
	r.traces.lead(leading)
	now := r.cfg.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if leading {
		r.began = now
	}
	r.engine.Lead(leading)
}

func (r *Controller) leads() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Leading
}

// WaitSynced waits until the caches hold the state that the API server had when they were started, or returns an error
// if ctx ends first. No decision is made before.
func (r *Controller) WaitSynced(ctx context.Context) error { return r.base.WaitSynced(ctx) }

// Stop begins no more deletions and lets those under way end, after which Run returns. It does not wait.
func (r *Controller) Stop() { r.base.Stop() }

// Synced reports whether WaitSynced would return at once.
func (r *Controller) Synced() bool { return r.base.Synced() }
