package provision

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/spans"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/selfselect"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// refOf identifies one claim, as opposed to a later claim of the same name.
func refOf(claim *v1.PersistentVolumeClaim) volume.ClaimRef {
	return volume.ClaimRef{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
}

// Controller provisions the volumes of one driver's claims.
type Controller struct {
	watches
	cfg Config
	// names are the provisioner names of the driver, its own name first.
	names    []string
	driver   Driver
	requests RequestBuilder
	client   kubernetes.Interface
	cluster  cluster
	log      Log
	tracker  *tracker
	assumed  *caches.Assumed
	// events records the Events of the normal course, and recorder all others. ownEvents sends both, unless the caller
	// set a recorder; then it is nil.
	events    record.EventRecorder
	recorder  *events.Recorder[Reason]
	ownEvents *ownEvents
	metrics   *metrics
	// tracer is nil without Config.TracerProvider.
	tracer  trace.Tracer
	control *controller.Controller
	// ran reports that Run was called.
	ran atomic.Bool
	// working reports whether Run is working; it is replaced in tests.
	working func() bool
	// queue has the names of volumes that claims want or that have an open entry. trying counts the ones being worked on.
	queue  *controller.Queue[string]
	trying atomic.Int64
	// slow limits the workers on volumes whose driver answers late.
	slow *controller.Lane[string]
	// sources is the queue that ends the protection of the sources of volumes.
	sources   *controller.Queue[volume.SourceRef]
	protected *protectedSources
	// selecting is the queue that selects this node for claims that no scheduler selects a node for.
	selecting  *controller.Queue[volume.ClaimRef]
	selections *selfselect.Turns
	// secrets is the queue with a single key that reads the Secrets of failed tries, away from the workers of tries.
	secrets *controller.Queue[struct{}]
}

// New returns a Controller for the claims of the named driver, on the cluster of config. config is copied; with a QPS
// of 0 only the number of workers limits the calls. New starts nothing but idle queues, which Stop ends.
func New(config *rest.Config, name string, driver Driver, requests RequestBuilder, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a provisioner: nil rest.Config")
	}
	own := rest.CopyConfig(config)
	own.Timeout = 0 // watches have no timeout
	client, err := kube.NewClientset(own)
	if err != nil {
		return nil, err
	}
	return NewForClient(client, name, driver, requests, cfg)
}

// NewForClient is New with a client that the caller has made, such as a fake clientset in a test. All calls share its
// limits.
func NewForClient(client kubernetes.Interface, name string, driver Driver, requests RequestBuilder,
	cfg Config) (*Controller, error) {
	switch {
	case client == nil:
		return nil, errors.New("create a provisioner: nil client")
	case name == "":
		return nil, errors.New("create a provisioner: the driver's name is empty")
	case driver == nil:
		return nil, errors.New("create a provisioner: nil Driver")
	case requests == nil:
		return nil, errors.New("create a provisioner: nil RequestBuilder")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a provisioner: %w", err)
	}
	if err := errors.Join(cfg.sameNode("Config.Log", cfg.Log), cfg.sameNode("Config.PVs", cfg.PVs),
		cfg.sameNode("the RequestBuilder", requests), cfg.keepsInFlight()); err != nil {
		return nil, fmt.Errorf("create a provisioner: %w", err)
	}
	cfg = cfg.withDefaults()
	p := &Controller{
		cfg: cfg, names: append([]string{name}, cfg.AlsoKnownAs...), driver: driver, requests: requests, client: client,
		log:     cfg.Log,
		cluster: apiServer{client.CoreV1(), cfg.Snapshots}, protected: newProtectedSources(),
		tracker: newTracker(), selections: selfselect.NewTurns(),
	}
	p.slow = controller.NewLane(cfg.Workers, p.tracker.namespaceOf)
	if p.events = cfg.Events; p.events == nil {
		p.ownEvents = &ownEvents{events.Discard{}}
		p.events = p.ownEvents
	}
	p.recorder = events.NewRecorder(events.Config[Reason]{Events: p.events, Pace: pace, Clock: cfg.Clock})
	if cfg.TracerProvider != nil {
		p.tracer = cfg.TracerProvider.Tracer(tracerName)
	}
	p.metrics = newMetrics(name, p.trying.Load, cfg.Log.Stats, cfg.Clock.Now)
	p.watches = p.newWatches()
	p.assumed = caches.NewAssumed(p.volumes.Reached)
	p.control = controller.NewController("provision", p.caches()...)
	controller.Begin(p.control, p.provision)
	p.working = p.control.Working
	p.newQueues()
	if err := p.metrics.register(cfg.Metrics); err != nil {
		p.control.Stop()
		return nil, err
	}
	p.follow()
	return p, nil
}

func (p *Controller) newQueues() {
	config := func(name string, workers int) controller.Config {
		return controller.Config{Name: name, Workers: workers, Clock: p.cfg.Clock}
	}
	p.queue = controller.NewQueue(p.control, config("claims", p.cfg.Workers), p.try)
	p.sources = controller.NewQueue(p.control, config("clone-sources", p.cfg.CloneWorkers), p.freeSource)
	p.selecting = controller.NewQueue(p.control, config("node-selections", 1), p.selectSelf)
	p.secrets = controller.NewQueue(p.control, config("secrets", 1), p.readSecrets)
}

// caches returns the caches that the Controller runs or, if the caller keeps them up to date, only waits for.
func (p *Controller) caches() []controller.Cache {
	var all []controller.Cache
	if p.own != nil {
		all = append(all, p.own)
	} else {
		idle := func(ctx context.Context) { <-ctx.Done() }
		all = append(all, controller.Polled("persistentvolumes", idle, p.volumes.Synced))
	}
	if p.cfg.FinishOnly { // the entries of the in-flight log suffice
		return all
	}
	all = append(all, p.claims, p.classes)
	if w, ok := p.requests.(Watcher); ok {
		all = append(all, controller.Polled("inputs of requests", w.Watch, w.Synced))
	}
	return all
}

// follow makes changes wake the queue and offer claims.
func (p *Controller) follow() {
	p.claims.Changed = p.claimChanged
	if p.cfg.Claims != nil {
		p.claims.Follower = p.cfg.Claims
	}
	p.volumes.Follow(p.volumeChanged)
	p.volumes.FollowLists(p.volumesListed)
	p.log.Follow(p.entryChanged)
	if f, ok := p.requests.(Follower); ok {
		f.Follow(p.nodesChanged)
	}
}

// classEvents handles the events of StorageClasses. A class that appears or disappears changes the options for existing
// claims.
type classEvents struct{ *Controller }

func (p classEvents) Added(class *storagev1.StorageClass)           { p.classCame(class) }
func (p classEvents) Deleted(class *storagev1.StorageClass, _ bool) { p.classChanged(class) }
func (p classEvents) Updated(before, now *storagev1.StorageClass) {
	if classDiffers(before, now) {
		p.classCame(now)
	}
}

// claimChanged handles a changed claim, but ignores events until Run works, because a replica that waits to lead would
// only collect names.
func (p *Controller) claimChanged(before, now *v1.PersistentVolumeClaim) {
	if !p.working() {
		return
	}
	if before != nil {
		p.cloneChanged(before) // the claim's source may not be in use any more
	}
	if now == nil {
		p.selections.Forget(before.UID)
		p.recorder.Forget(before.UID)
		p.wake(p.nameOf(before.UID)) // before the name is forgotten
		p.tracker.over(before.UID)
		return
	}
	if before != nil {
		p.claimCorrected(before, now)
	}
	p.cloneChanged(now)
	p.wake(p.nameOf(now.UID))
	if now.Spec.VolumeName != "" {
		p.tracker.over(now.UID)
		p.selections.Forget(now.UID)
	}
	p.offer(now)
}

// wake queues a name that has an open entry or waits for its next try.
func (p *Controller) wake(name string) {
	if p.log.State(name) == inflight.Open || p.tracker.knows(name) {
		p.queue.Add(name)
	}
}

// entryEnded is called for every entry that has left the log, maybe more than once. It applies the end to everything
// but the worker on the name: it forgets a claim that is bound or gone, and queues the sources of the requests, which
// may no longer be in use.
func (p *Controller) entryEnded(name string) {
	entry, found := p.tracker.end(name)
	if !found {
		return
	}
	if p.claims.WholeByUID(entry.Claim.UID) == nil {
		p.tracker.over(entry.Claim.UID) // it was bound, or gone, before
	}
	for _, request := range entry.Requests {
		p.wakeSource(sourceOf(request))
	}
}

// removeEntry removes an entry, which ends when that is confirmed.
func (p *Controller) removeEntry(name string) {
	if p.log.Remove(name); p.log.State(name) == inflight.Absent {
		p.entryEnded(name) // no removal follows
	}
}

// entryChanged handles a confirmed removal of an entry, which the name's worker may know nothing of, and an entry of an
// earlier process that can be read only now.
func (p *Controller) entryChanged(name string) {
	switch entry, state := p.log.Get(name); {
	case state != inflight.Open && state != inflight.Removing: // no later entry
		p.entryEnded(name)
	case !p.tracker.isOpen(name):
		p.inheritEntry(entry)
	}
	p.queue.Add(name)
	p.roomCame()
}

// volumeChanged handles PVs that appear or disappear.
func (p *Controller) volumeChanged(pv volume.PV) {
	p.assumed.Drop(pv)
	p.nameShown(pv)
	p.wake(pv.Name)
	p.offerOf(pv.Claim.UID)
}

// volumesListed drops the assumed PVs that a list of PVs proves gone. The claim of a PV that appeared and disappeared
// before the list may need another one.
func (p *Controller) volumesListed() {
	for _, pv := range p.assumed.Expire() {
		if _, shown := p.volumes.Get(pv.Name); !shown {
			p.volumeChanged(volume.At(p.cfg.node(), pv))
		}
	}
}

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A replica that waits for
// leadership calls it to be able to act immediately when it leads. Watch changes no objects of the cluster.
func (p *Controller) Watch(ctx context.Context) { p.control.Watch(ctx) }

// Run provisions until ctx ends, which cancels calls in flight, or until Stop, which lets them end. It returns when all
// work has ended. The leading replica calls it once, because a later call returns an error at once; with leader
// election, ctx has to end with the lease. It returns the error with which the in-flight log ends, for example because
// another process has taken it over.
//
// With Config.Lease, Run also ends by itself when the Lease has run out, with an error that wraps
// leadership.ErrExpired. A call may last longer than the Lease, as long as the Lease is renewed.
//
// Run watches by itself unless Watch already does, which then has to continue.
func (p *Controller) Run(ctx context.Context) error {
	if err := controller.Once(&p.ran); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	ctx, stop := leadership.WhileHeld(spans.Without(ctx), p.cfg.Lease, p.cfg.Clock)
	defer stop()
	err := p.run(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, leadership.ErrExpired) {
		return fmt.Errorf("provision: %w", cause)
	}
	return err
}

func (p *Controller) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	if p.ownEvents != nil {
		defer p.ownEvents.start(p.client.CoreV1(), p.names[0])()
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	defer p.control.Stop()
	all.Go(func() { p.Watch(ctx) }) // fills the caches during the take-over
	if stopped, err := p.takeOver(ctx); err != nil || stopped {
		return err
	}
	p.inherit() // before the log confirms removals, whose entries this process would not know
	// The log outlives the work in hand, so that results of begun calls are recorded.
	writing, endWriting := context.WithCancel(context.WithoutCancel(ctx))
	broken := make(chan error, 1)
	all.Go(func() {
		if err := p.log.Run(writing); err != nil && writing.Err() == nil {
			broken <- err
			cancel(err)
		}
	})
	defer endWriting()
	if err := p.control.Run(ctx); err != nil {
		return err
	}
	p.flush(ctx)
	select {
	case err := <-broken:
		return err
	default:
		return nil
	}
}

// provision offers the claims that were shown before Run worked, and begins to read Secrets.
func (p *Controller) provision(ctx context.Context) {
	klog.FromContext(ctx).Info("Provisioning", "driver", p.names[0], "workers", p.cfg.Workers, "finishOnly",
		p.cfg.FinishOnly)
	p.secrets.Add(struct{}{})
	p.claims.Each(func(claim *v1.PersistentVolumeClaim) { p.claimChanged(nil, claim) })
}

// Flush settings: the maximum wait for removals, and the interval of the checks.
const (
	flushTimeout = 2 * time.Second
	flushPoll    = 20 * time.Millisecond
)

// flush waits briefly for pending removals, because the next process would ask for a remaining entry once more.
func (p *Controller) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	for p.log.Stats().Removing > 0 {
		if !controller.Pause(ctx, p.cfg.Clock, flushPoll) {
			return
		}
	}
}

// takeOver takes the in-flight log over, unless Stop is called first.
func (p *Controller) takeOver(ctx context.Context) (stopped bool, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	taken := make(chan struct{})
	go func() { defer close(taken); err = p.log.TakeOver(ctx) }()
	select {
	case <-taken:
	case <-p.control.Stopped():
		end()
		<-taken
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("take over the in-flight log: %w", err)
	}
	return false, nil
}

// inherit queues the entries of earlier processes. An operator may have settled some of them since, which the take-over
// removes; the end of these, too, frees their sources.
func (p *Controller) inherit() {
	for _, entry := range p.log.Entries() {
		p.inheritEntry(entry)
	}
}

func (p *Controller) inheritEntry(entry inflight.Entry) {
	p.tracker.note(entry, true)
	for _, asked := range entry.Requests {
		p.protected.inherit(sourceOf(asked))
	}
	p.tracker.mark(entry.Volume, ending{slow: true}) // the driver has not answered the earlier process
	p.queue.Add(entry.Volume)
}

// Stop lets the work in hand end and begins no more, so that Run returns, but does not wait for it.
func (p *Controller) Stop() { p.control.Stop() }

// Synced reports whether the caches hold the state that the API server had when they were started.
func (p *Controller) Synced() bool { return p.control.Synced() }

// retries returns the backoff of retried work.
func (p *Controller) retries() controller.Backoff {
	return controller.Backoff{First: p.cfg.RetryStart, Max: p.cfg.RetryMax}
}
