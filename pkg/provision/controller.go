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
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/loop"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// apiTimeout bounds one call to the API server.
const apiTimeout = 30 * time.Second

// key names one claim, not its successor of the same name.
type key struct {
	namespace, name string
	uid             types.UID
}

func keyOf(claim *v1.PersistentVolumeClaim) key {
	return key{claim.Namespace, claim.Name, claim.UID}
}

// Provisioner makes the volumes of one driver's claims.
type Provisioner struct {
	watches
	cfg Config
	// names are the provisioner names that count as ours, the driver's own first.
	names   []string
	driver  Driver
	orders  Orders
	client  kubernetes.Interface
	cluster cluster
	lives   *lives
	// early counts the failures of claims that come before Provision.
	early   *lives
	shelf   *shelf
	hands   *hands
	gate    *gate
	reports *reports
	metrics *metrics
	// clean is our own loop: claims that need no volume made any more, or whose volume has its PV.
	clean queue[key]
	// sources is the loop that lets claims go that were cloned.
	sources *loop.Loop[types.NamespacedName]
	// bidding is the loop that selects this node for claims for which nobody selects one.
	bidding *loop.Loop[key]
	bids    *bids
	library *controller.ProvisionController
	// toLibrary brings a claim to the library.
	toLibrary cache.ResourceEventHandler
	// ended holds the last state of claims that are gone and have something left.
	ended sync.Map

	// protects: claims get our finalizer. It is set before work begins.
	protects bool
	watching atomic.Bool
	// awake: Run has begun to work on claims.
	awake   atomic.Bool
	running atomic.Pointer[context.Context]
	stop    chan struct{}
	stopped sync.Once
}

// queue is a loop.Loop.
type queue[K comparable] interface {
	Add(key K)
	Run(ctx context.Context)
	Stop()
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
		cfg: cfg, names: append([]string{name}, cfg.AlsoKnownAs...), driver: driver, orders: orders, client: client,
		cluster: apiServer{client.CoreV1(), cfg.finalizer()}, lives: newLives(), early: newLives(), shelf: newShelf(), hands: newHands(), gate: newGate(), bids: newBids(),
		reports: newReports(cfg.Events), stop: make(chan struct{}),
	}
	p.metrics = newMetrics(name, p.gate.count, func() int { return p.reports.waiting(ReasonOutcomeUnknown) })
	var err error
	if p.watches, err = newWatches(core, client, name, cfg); err != nil {
		return nil, err
	}
	if p.clean, err = loop.New(loop.Config{Name: "provision", Workers: cfg.CleanUpWorkers, Clock: cfg.Clock}, p.tidy); err != nil {
		return nil, err
	}
	if p.sources, err = loop.New(loop.Config{Name: "clone-sources", Workers: cfg.CloneWorkers, Clock: cfg.Clock}, p.freeSource); err != nil {
		return nil, err
	}
	if p.bidding, err = loop.New(loop.Config{Name: "bids", Workers: 1, Clock: cfg.Clock}, p.bid); err != nil {
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
	// A class that comes or goes changes what can be done for the claims that are held, and for
	// those that came before it.
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
		p.claimGone(before)
		return
	}
	p.cloneChanged(now)
	if now.Spec.VolumeName != "" {
		p.bids.forget(now.UID)
	}
	if _, known := p.lives.known(now.UID); known || slices.Contains(now.Finalizers, p.cfg.finalizer()) {
		p.clean.Add(keyOf(now))
	}
	p.offer(now)
}

func (p *Provisioner) claimGone(last *v1.PersistentVolumeClaim) {
	p.bids.forget(last.UID)
	p.reports.announced.Delete(last.UID)
	if _, known := p.lives.known(last.UID); known {
		p.ended.Store(keyOf(last), last)
		p.clean.Add(keyOf(last))
	}
}

// volumeChanged is told of PVs that come and go.
func (p *Provisioner) volumeChanged(pv reclaim.PV) {
	p.shelf.drop(pv)
	if k, known := p.lives.known(pv.Claim.UID); known {
		p.clean.Add(k)
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
	wanted := claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil && p.at(claim) != AtElsewhere && p.ours(claim)
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
	if w, ok := p.orders.(Watcher); ok {
		all.Go(func() { w.Watch(ctx) })
	}
	all.Wait()
}

// Run provisions until ctx ends, which cuts off calls in flight, or until Stop, which lets them
// end; it returns when all work has ended. It is called once, by the one replica that leads: where
// leader election is used, ctx is to end with the lease.
//
// Run watches by itself unless Watch already does; then it needs Watch to go on.
func (p *Provisioner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	p.running.Store(&ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { p.Watch(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), p.Synced) {
		return fmt.Errorf("wait for the first list of claims, PVs and classes: %w", context.Cause(ctx))
	}
	p.protects = p.mayProtect(ctx)
	klog.FromContext(ctx).Info("Provisioning", "driver", p.names[0], "workers", p.cfg.Workers, "finalizer", p.protects)
	p.awake.Store(true)
	p.wakeAll() // what happened before there was anybody to wake
	handOut, end := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { p.library.Run(handOut) })
	work.Go(func() { p.clean.Run(ctx) })
	work.Go(func() { p.sources.Run(ctx) })
	work.Go(func() { p.bidding.Run(ctx) })
	select {
	case <-ctx.Done():
	case <-p.stop:
	}
	end()
	p.clean.Stop()
	p.sources.Stop()
	p.bidding.Stop()
	p.gate.close()
	work.Wait()
	p.gate.wait()
	return nil
}

// Stop lets the work in hand end and begins no more; Run then returns. It does not wait.
func (p *Provisioner) Stop() { p.stopped.Do(func() { close(p.stop) }) }

// Synced tells whether the caches hold what the API server had when they were started.
func (p *Provisioner) Synced() bool {
	w, watches := p.orders.(Watcher)
	return p.synced() && (!watches || w.Synced())
}

// working returns the context of Run in place of the library's, which is derived from it and ends
// at Stop, when work in hand may go on.
func (p *Provisioner) working(context.Context) context.Context { return *p.running.Load() }

// newLibrary makes the library's controller.
func (p *Provisioner) newLibrary() *controller.ProvisionController {
	options := []func(*controller.ProvisionController) error{
		controller.LeaderElection(false),
		controller.AddFinalizer(true),
		controller.AdditionalProvisionerNames(p.cfg.AlsoKnownAs),
		controller.FailedProvisionThreshold(0), // never gives up
		controller.RateLimiter(limiter{p}),
		controller.Threadiness(p.cfg.Workers),
		controller.MetricsInstance(p.metrics.library),
		controller.ClaimsInformer(newClaimInformer(p)),
		controller.VolumesInformer(newVolumeInformer(p)),
		controller.ClassesInformer(p.classes),
	}
	if local := p.cfg.Local; local != nil {
		options = append(options, controller.NodesLister(nodeLister(local.Node)))
	}
	return controller.NewProvisionController(klog.Background(), libraryClient{p.client, p.shelf}, p.names[0], library{p}, options...)
}

// tidy works on one claim that needs no volume made any more, or whose volume has its PV.
func (p *Provisioner) tidy(ctx context.Context, k key) loop.Next {
	claim := p.lastKnown(k)
	if claim == nil || !p.gate.enter() {
		return loop.Next{}
	}
	defer p.gate.leave()
	it, giveBack, err := p.lives.take(ctx, k)
	if err != nil {
		return loop.Next{}
	}
	defer giveBack()
	w := &run{Provisioner: p, claim: claim, life: it}
	defer w.leaveName()
	d, err := w.work(ctx)
	return w.tidied(ctx, d, err)
}

// lastKnown returns the claim as it is, or as it was when it ended and had something left; nil
// otherwise.
func (p *Provisioner) lastKnown(k key) *v1.PersistentVolumeClaim {
	if claim := p.claims.of(k); claim != nil {
		return claim
	}
	last, _ := p.ended.Load(k)
	claim, _ := last.(*v1.PersistentVolumeClaim)
	return claim
}

// tidied ends a run of our own loop.
func (w *run) tidied(ctx context.Context, d Decision, err error) loop.Next {
	if err != nil {
		return w.trouble(ctx, err)
	}
	w.reports.now(ctx, w.facts.Claim, d.Reason, w.detail(d.Reason))
	if d.Over {
		w.finish(keyOf(w.claim))
	}
	if d.Timed {
		return w.usual()
	}
	return w.bringBack(w.claim)
}

// detail adds to a reason's sentence what is known of this process.
func (p *Provisioner) detail(why Reason) string {
	if why != ReasonOutcomeUnknown || p.cfg.Local == nil {
		return ""
	}
	return fmt.Sprintf("The volume would be on node %s; the finalizer is %s.", p.cfg.Local.Node.Name, p.cfg.finalizer())
}

// bringBack has the library ask again for a claim for which it asked too early.
func (p *Provisioner) bringBack(claim *v1.PersistentVolumeClaim) loop.Next {
	wait, early := p.lives.comeBack(claim.UID, p.cfg.Clock.Now())
	switch {
	case !early:
		return loop.Next{}
	case wait > 0:
		return loop.Next{Backoff: loop.Backoff{First: wait, Max: wait}}
	}
	p.offer(claim)
	return loop.Next{}
}

// finish forgets a claim for which nothing is left to be done, once the cache shows that we do not
// hold it any more: what is remembered keeps us from taking the finalizer off twice.
func (w *run) finish(k key) {
	if now := w.claims.of(k); now != nil && slices.Contains(now.Finalizers, w.cfg.finalizer()) && w.facts.Claim.Ours {
		return
	}
	w.reports.forget(k.uid)
	w.ended.Delete(k)
	w.early.freely(k.uid)
	w.lives.forget(k.uid)
}

// trouble ends a run of our own loop that failed.
func (w *run) trouble(ctx context.Context, err error) loop.Next {
	reason := ReasonUnreadable
	if t := (*trouble)(nil); errors.As(err, &t) {
		reason = t.reason
	}
	klog.FromContext(ctx).V(2).Info("A step failed and is tried again", "claim", klog.KObj(w.claim), "reason", reason, "err", err)
	w.reports.now(ctx, w.facts.Claim, reason, err.Error())
	return loop.Next{Backoff: loop.Backoff{First: min(w.firstDelay(err), w.cfg.RetryMax), Max: w.cfg.RetryMax}}
}

func (p *Provisioner) usual() loop.Next {
	return loop.Next{Backoff: loop.Backoff{First: p.cfg.RetryStart, Max: p.cfg.RetryMax}}
}
