package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	libcontroller "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// apiTimeout bounds one call to the API server.
const apiTimeout = 30 * time.Second

// key names one claim, not its successor of the same name.
type key struct {
	namespace, name string
	uid             types.UID
}

// String is how the log shows it.
func (k key) String() string { return k.namespace + "/" + k.name }

func keyOf(claim *v1.PersistentVolumeClaim) key {
	return key{claim.Namespace, claim.Name, claim.UID}
}

// Provisioner provisions the volumes of one driver's claims.
type Provisioner struct {
	watches
	cfg Config
	// names are the provisioner names that count as ours, the driver's own first.
	names   []string
	driver  Driver
	orders  Orders
	client  kubernetes.Interface
	cluster cluster
	log     Log
	tracker *tracker
	// early counts the failures of claims that come before Provision.
	early   *tracker
	assumed *assumed
	gate    *gate
	reports *reports
	metrics *metrics
	// unsettled is our own loop: volumes, by name, whose entry is open, and claims that the library asked for early.
	unsettled *controller.Loop[string]
	// claimed are the claims that names wait in unsettled for, where no entry is open.
	claimed sync.Map
	// sources is the loop that ends the protection of what volumes were made from.
	sources   *controller.Loop[request.SourceRef]
	protected *protectedSources
	// bidding is the loop that selects this node for claims for which nobody selects one.
	bidding *controller.Loop[key]
	bids    *bids
	library *libcontroller.ProvisionController
	// toLibrary brings a claim to the library.
	toLibrary cache.ResourceEventHandler

	watching atomic.Bool
	// awake: Run has begun to work on claims.
	awake   atomic.Bool
	running atomic.Pointer[context.Context]
	stop    chan struct{}
	stopped sync.Once
}

// New returns a Provisioner for the claims of the driver with this name, on the cluster that
// config describes. config is copied; a QPS of 0 means that nothing but the number of workers
// limits the calls. Nothing is started but the library's broadcaster of events, which is idle until
// Run and cannot be ended. The library also adds to client-go's global scheme: New is not to be
// called while other goroutines use that.
func New(config *rest.Config, name string, driver Driver, orders Orders, cfg Config) (*Provisioner, error) {
	if config == nil {
		return nil, errors.New("make a provisioner: no cluster is given")
	}
	watching, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	own := rest.CopyConfig(config)
	if own.QPS == 0 {
		own.QPS = -1
	}
	own.Timeout = 0 // watches are long
	own.ContentType = "application/vnd.kubernetes.protobuf"
	own.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client for the API server: %w", err)
	}
	return newProvisioner(watching.Core.RESTClient(), client, name, driver, orders, cfg)
}

// newProvisioner has core watch claims and PVs, and client do all else, on the same API server.
func newProvisioner(core rest.Interface, client kubernetes.Interface, name string, driver Driver, orders Orders, cfg Config) (*Provisioner, error) {
	switch {
	case name == "":
		return nil, errors.New("make a provisioner: the driver's name is empty")
	case driver == nil:
		return nil, errors.New("make a provisioner: no driver is given")
	case orders == nil:
		return nil, errors.New("make a provisioner: nothing that says what volumes are like is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make a provisioner: %w", err)
	}
	cfg = cfg.withDefaults()
	p := &Provisioner{
		cfg: cfg, names: append([]string{name}, cfg.AlsoKnownAs...), driver: driver, orders: orders, client: client, log: cfg.Log,
		cluster: apiServer{client.CoreV1(), cfg.Snapshots, cfg.legacyFinalizer()}, protected: newProtectedSources(), tracker: newTracker(), early: newTracker(), assumed: newAssumed(), gate: newGate(), bids: newBids(),
		reports: newReports(cfg.Events), stop: make(chan struct{}),
	}
	p.metrics = newMetrics(name, p.gate.count, cfg.Log.Stats)
	var err error
	if p.watches, err = newWatches(core, client, name, cfg); err != nil {
		return nil, err
	}
	if p.unsettled, err = controller.New(controller.Config{Name: "unsettled-volumes", Workers: cfg.FinishWorkers, Clock: cfg.Clock}, p.finish); err != nil {
		return nil, err
	}
	if p.sources, err = controller.New(controller.Config{Name: "clone-sources", Workers: cfg.CloneWorkers, Clock: cfg.Clock}, p.freeSource); err != nil {
		return nil, err
	}
	if p.bidding, err = controller.New(controller.Config{Name: "bids", Workers: 1, Clock: cfg.Clock}, p.bid); err != nil {
		return nil, err
	}
	if err := p.follow(); err != nil {
		return nil, fmt.Errorf("set up a watch cache: %w", err)
	}
	p.library = p.newLibrary()
	return p, p.metrics.register(cfg.Metrics)
}

// follow has changes wake our loop, and bring claims to the library.
func (p *Provisioner) follow() error {
	p.claims.changed = p.claimChanged
	p.volumes.Follow(p.volumeChanged)
	p.log.Follow(p.unsettled.Add)
	// A class that comes or goes changes what can be done for claims that came before it.
	_, err := p.classes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.wakeAll() },
		DeleteFunc: func(any) { p.wakeAll() },
	})
	return err
}

// claimChanged wakes our loops and the library. Before Run works nobody would look: a replica that
// waits to lead would only pile up names.
func (p *Provisioner) claimChanged(before, now *v1.PersistentVolumeClaim) {
	if !p.awake.Load() {
		return
	}
	if before != nil {
		p.cloneChanged(before) // what it was a clone of may not be kept any more
	}
	if now == nil {
		p.bids.forget(before.UID)
		p.reports.announced.Delete(before.UID)
		p.tracker.over(before.UID)
		p.wake(before)
		return
	}
	p.cloneChanged(now)
	if now.Spec.VolumeName != "" {
		p.tracker.over(now.UID)
		p.bids.forget(now.UID)
	}
	p.wake(now)
	p.offer(now)
}

// wake has our loop look at a claim whose volume is unsettled, or was, or that has the finalizer of an earlier version.
func (p *Provisioner) wake(claim *v1.PersistentVolumeClaim) {
	name := p.nameOf(claim.UID)
	if slices.Contains(claim.Finalizers, p.cfg.legacyFinalizer()) {
		p.claimed.Store(name, keyOf(claim))
	} else if p.log.State(name) != inflight.Open && p.tracker.claimOf(name) == "" {
		return
	}
	p.unsettled.Add(name)
}

// volumeChanged is called with PVs that come and go.
func (p *Provisioner) volumeChanged(pv volume.PV) {
	p.assumed.drop(pv)
	if p.log.State(pv.Name) == inflight.Open {
		p.unsettled.Add(pv.Name)
	}
	if claim := p.claims.wholeByUID(pv.Claim.UID); claim != nil {
		p.offer(claim)
	}
}

// wakeAll has every claim looked at.
func (p *Provisioner) wakeAll() {
	p.claims.Each(func(claim *v1.PersistentVolumeClaim) { p.claimChanged(nil, claim) })
}

// offer brings a claim to the library if it may have to provision it. The library would ask about
// one whose PV is stored in vain.
func (p *Provisioner) offer(claim *v1.PersistentVolumeClaim) {
	wanted := claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil && p.at(claim) != provisioning.NodeElsewhere && p.ours(claim)
	if p.awake.Load() && wanted && !p.stored(claim.UID) {
		p.toLibrary.OnUpdate(claim, claim)
	}
}

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A replica that
// waits to lead calls it, so that it can act at once when it does. It changes nothing in the
// cluster.
func (p *Provisioner) Watch(ctx context.Context) {
	if !p.watching.CompareAndSwap(false, true) {
		// Somebody else watches already, and for longer than this caller may.
		<-ctx.Done()
		return
	}
	var all sync.WaitGroup
	all.Go(func() { p.watch(ctx) })
	if w, ok := p.orders.(Watcher); ok && !p.cfg.FinishOnly {
		all.Go(func() { w.Watch(ctx) })
	}
	all.Wait()
}

// Run provisions until ctx ends, which cuts off calls in flight, or until Stop, which lets them
// end; it returns when all work has ended. It is called once, by the one replica that leads: where
// leader election is used, ctx is to end with the lease. It returns an error when another process takes
// the in-flight log over.
//
// Run watches by itself unless Watch already does; then it needs Watch to go on.
func (p *Provisioner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	p.running.Store(&ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	all.Go(func() { p.Watch(ctx) })
	if stopped, err := p.takeOver(ctx); err != nil || stopped {
		return err
	}
	// The log outlives the work in hand: what was begun is written down.
	writing, endWriting := context.WithCancel(context.WithoutCancel(ctx))
	all.Go(func() {
		if err := p.log.Run(writing); err != nil && writing.Err() == nil {
			cancel(err)
		}
	})
	defer endWriting()
	if !cache.WaitForCacheSync(ctx.Done(), p.Synced) {
		return fmt.Errorf("wait for the first list of claims, PVs and classes: %w", context.Cause(ctx))
	}
	klog.FromContext(ctx).Info("Provisioning", "driver", p.names[0], "workers", p.cfg.Workers, "finishOnly", p.cfg.FinishOnly)
	p.awake.Store(true)
	p.inherit()
	p.wakeAll() // what happened before there was anybody to wake
	handOut, end := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { p.unsettled.Run(ctx) })
	if !p.cfg.FinishOnly {
		work.Go(func() { p.library.Run(handOut) })
		work.Go(func() { p.sources.Run(ctx) })
		work.Go(func() { p.bidding.Run(ctx) })
	}
	select {
	case <-ctx.Done():
	case <-p.stop:
	}
	end()
	p.unsettled.Stop()
	p.sources.Stop()
	p.bidding.Stop()
	p.gate.close()
	work.Wait()
	p.gate.wait()
	p.flush(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, inflight.ErrSuperseded) {
		return cause
	}
	return nil
}

// Flush settings: how long removals are waited for, and how often it is looked.
const (
	flushTimeout = 2 * time.Second
	flushPoll    = 20 * time.Millisecond
)

// flush waits a moment for entries that are being removed: one that stays is asked for once more by the next process.
func (p *Provisioner) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	for p.log.Stats().Removing > 0 {
		select {
		case <-ctx.Done():
			return
		case <-p.cfg.Clock.After(flushPoll):
		}
	}
}

// takeOver takes the in-flight log over, unless Stop is called before.
func (p *Provisioner) takeOver(ctx context.Context) (stopped bool, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	taken := make(chan struct{})
	go func() { defer close(taken); err = p.log.TakeOver(ctx) }()
	select {
	case <-taken:
	case <-p.stop:
		end()
		<-taken
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("take over the in-flight log: %w", err)
	}
	return false, nil
}

// inherit has our loop finish what earlier processes have begun.
func (p *Provisioner) inherit() {
	for _, entry := range p.log.Entries() {
		p.tracker.note(entry)
		p.unsettled.Add(entry.Volume)
	}
}

// Stop lets the work in hand end and begins no more; Run then returns. It does not wait.
func (p *Provisioner) Stop() { p.stopped.Do(func() { close(p.stop) }) }

// Synced tells whether the caches hold what the API server had when they were started.
func (p *Provisioner) Synced() bool {
	w, watches := p.orders.(Watcher)
	return p.synced() && (!watches || p.cfg.FinishOnly || w.Synced())
}

// working returns the context of Run in place of the library's, which is derived from it and ends
// at Stop, when work in hand may go on.
func (p *Provisioner) working(context.Context) context.Context { return *p.running.Load() }

// newLibrary makes the library's controller.
func (p *Provisioner) newLibrary() *libcontroller.ProvisionController {
	options := []func(*libcontroller.ProvisionController) error{
		libcontroller.LeaderElection(false),
		libcontroller.AddFinalizer(true),
		libcontroller.AdditionalProvisionerNames(p.cfg.AlsoKnownAs),
		libcontroller.FailedProvisionThreshold(0), // never gives up
		libcontroller.RateLimiter(limiter{p}),
		libcontroller.Threadiness(p.cfg.Workers),
		libcontroller.MetricsInstance(p.metrics.library),
		libcontroller.ClaimsInformer(newClaimInformer(p)),
		libcontroller.VolumesInformer(newVolumeInformer(p)),
		libcontroller.ClassesInformer(p.classes),
	}
	if local := p.cfg.Local; local != nil {
		options = append(options, libcontroller.NodesLister(nodeLister(local.Node)))
	}
	return libcontroller.NewProvisionController(klog.Background(), libraryClient{p.client, p.assumed}, p.names[0], library{p}, options...)
}

// usual is the growing delay of what is tried again.
func (p *Provisioner) usual() controller.Next {
	return controller.Next{Backoff: controller.Backoff{First: p.cfg.RetryStart, Max: p.cfg.RetryMax}}
}
