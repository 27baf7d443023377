package provision

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/library"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/selfselect"
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

func keyOfEntry(entry inflight.Entry) key {
	return key{entry.Claim.Namespace, entry.Claim.Name, entry.Claim.UID}
}

// Controller provisions the volumes of one driver's claims.
type Controller struct {
	watches
	cfg Config
	// names are the provisioner names that count as ours, the driver's own first.
	names    []string
	driver   Driver
	requests RequestBuilder
	client   kubernetes.Interface
	cluster  cluster
	log      Log
	tracker  *tracker
	assumed  *caches.Assumed
	// events are those of the normal course, and recorder records all others. broadcaster sends them where no recorder
	// was given, and is nil else.
	events      record.EventRecorder
	recorder    *events.Recorder[Reason]
	broadcaster record.EventBroadcaster
	metrics     *metrics
	control     *controller.Controller
	// working reports whether Run works; replaced in tests.
	working func() bool
	// queue has the names of volumes that claims want, or whose entry is open, and trying counts those that are worked on.
	queue  *controller.Queue[string]
	trying atomic.Int64
	// slow bounds the workers that volumes keep whose driver answers late.
	slow *lane
	// sources is the queue that ends the protection of what volumes were made from.
	sources   *controller.Queue[request.SourceRef]
	protected *protectedSources
	// selecting is the queue that selects this node for claims for which nobody selects one.
	selecting  *controller.Queue[key]
	selections *selfselect.Turns
	library    *library.Controller
}

// New returns a Controller for the claims of the driver with this name, on the cluster that
// config describes. config is copied; a QPS of 0 means that nothing but the number of workers
// limits the calls. Nothing is started but broadcasters of events, which are idle until Run; the
// library's cannot be ended. The library also adds to client-go's global scheme: New is not to be
// called while other goroutines use that.
func New(config *rest.Config, name string, driver Driver, requests RequestBuilder, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a provisioner: no cluster is given")
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
		return nil, fmt.Errorf("create a client for the API server: %w", err)
	}
	return newController(watching.Core.RESTClient(), client, name, driver, requests, cfg)
}

// newController has core watch claims and PVs, and client do all else, on the same API server.
func newController(core rest.Interface, client kubernetes.Interface, name string, driver Driver,
	requests RequestBuilder, cfg Config) (*Controller, error) {
	switch {
	case name == "":
		return nil, errors.New("create a provisioner: the driver's name is empty")
	case driver == nil:
		return nil, errors.New("create a provisioner: no driver is given")
	case requests == nil:
		return nil, errors.New("create a provisioner: no request builder is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a provisioner: %w", err)
	}
	cfg = cfg.withDefaults()
	p := &Controller{
		cfg: cfg, names: append([]string{name}, cfg.AlsoKnownAs...), driver: driver, requests: requests, client: client,
		log:     cfg.Log,
		cluster: apiServer{client.CoreV1(), cfg.Snapshots}, protected: newProtectedSources(),
		tracker: newTracker(), selections: selfselect.NewTurns(), slow: newLane(cfg.Workers),
	}
	if p.events = cfg.Events; p.events == nil {
		p.broadcaster = record.NewBroadcaster()
		p.events = p.broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: name})
	}
	p.recorder = events.NewRecorder(events.Config[Reason]{Events: p.events, Pace: pace, Clock: cfg.Clock})
	p.metrics = newMetrics(name, p.trying.Load, cfg.Log.Stats, cfg.Clock.Now)
	var err error
	if p.watches, err = newWatches(core, client, name, cfg); err != nil {
		return nil, err
	}
	p.assumed = caches.NewAssumed(p.volumes.Reached)
	p.control = controller.NewController("provision", p.caches()...)
	p.working = p.control.Working
	if err := p.newQueues(); err != nil {
		return nil, err
	}
	if err := p.follow(); err != nil {
		return nil, fmt.Errorf("set up a watch cache: %w", err)
	}
	p.library = p.newLibrary()
	return p, p.metrics.register(cfg.Metrics)
}

func (p *Controller) newQueues() (err error) {
	config := func(name string, workers int) controller.Config {
		return controller.Config{Name: name, Workers: workers, Clock: p.cfg.Clock}
	}
	if p.queue, err = controller.NewQueue(p.control, config("provisions", p.cfg.Workers), p.try); err != nil {
		return err
	}
	if p.sources, err = controller.NewQueue(p.control, config("clone-sources", p.cfg.CloneWorkers),
		p.freeSource); err != nil {
		return err
	}
	p.selecting, err = controller.NewQueue(p.control, config("node-selections", 1), p.selectSelf)
	return err
}

// caches are those that the Controller runs, also where somebody else keeps them up to date: then they are waited for.
func (p *Controller) caches() []controller.Cache {
	idle := func(ctx context.Context) { <-ctx.Done() }
	volumes := idle
	if p.own != nil {
		volumes = p.own.Run
	}
	all := []controller.Cache{controller.Polled("persistentvolumes", volumes, p.volumes.Synced)}
	if p.finishOnly {
		return all
	}
	all = append(all,
		controller.Polled("persistentvolumeclaims", p.claims.Run, p.claims.Synced),
		controller.Polled("storageclasses", p.classes.RunWithContext, p.classes.HasSynced))
	if w, ok := p.requests.(Watcher); ok {
		all = append(all, controller.Polled("what requests are built from", w.Watch, w.Synced))
	}
	return all
}

// follow has changes wake the queue, and bring claims to the library.
func (p *Controller) follow() error {
	p.claims.Changed = p.claimChanged
	if p.cfg.Claims != nil {
		p.claims.Follower = p.cfg.Claims
	}
	p.volumes.Follow(p.volumeChanged)
	p.volumes.FollowLists(p.volumesListed)
	p.log.Follow(p.queue.Add)
	// A class that comes or goes changes what can be done for claims that came before it.
	_, err := p.classes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(now any) {
			if class, ok := now.(*storagev1.StorageClass); ok {
				p.classCame(class)
			}
		},
		UpdateFunc: func(before, now any) {
			was, ok := before.(*storagev1.StorageClass)
			if class, also := now.(*storagev1.StorageClass); ok && also && classDiffers(was, class) {
				p.classCame(class)
			}
		},
		DeleteFunc: func(any) { p.wakeAll() },
	})
	if f, ok := p.requests.(Follower); ok {
		f.Follow(p.nodesChanged)
	}
	return err
}

// claimChanged has a claim looked at that was changed. Before Run works nobody would look: a replica that
// waits to lead would only pile up names.
func (p *Controller) claimChanged(before, now *v1.PersistentVolumeClaim) {
	if !p.working() {
		return
	}
	if before != nil {
		p.cloneChanged(before) // what it was a clone of may not be kept any more
	}
	if now == nil {
		p.selections.Forget(before.UID)
		p.recorder.Forget(before.UID)
		p.tracker.over(before.UID)
		p.wake(p.nameOf(before.UID))
		return
	}
	if before != nil {
		p.claimCorrected(before, now)
	}
	p.cloneChanged(now)
	if now.Spec.VolumeName != "" {
		p.tracker.over(now.UID)
		p.selections.Forget(now.UID)
	}
	p.wake(p.nameOf(now.UID))
	p.offer(now)
}

// wake has a name looked at whose entry is open, or that waits for its next try.
func (p *Controller) wake(name string) {
	if p.log.State(name) == inflight.Open || p.tracker.knows(name) {
		p.queue.Add(name)
	}
}

// volumeChanged is called with PVs that come and go.
func (p *Controller) volumeChanged(pv volume.PV) {
	p.assumed.Drop(pv)
	p.wake(pv.Name)
	if claim := p.claims.WholeByUID(pv.Claim.UID); claim != nil {
		p.offer(claim)
	}
}

// volumesListed drops what a list of PVs shows to be gone. The claim of a PV that came and went before the list may
// need another one.
func (p *Controller) volumesListed() {
	for _, pv := range p.assumed.Expire() {
		if _, shown := p.volumes.Get(pv.Name); !shown {
			p.volumeChanged(volume.At(p.cfg.node(), pv))
		}
	}
}

// wakeAll has every claim looked at.
func (p *Controller) wakeAll() {
	p.claims.Each(func(claim *v1.PersistentVolumeClaim) { p.claimChanged(nil, claim) })
}

// offer brings a claim to the library if it may have to provision it. The library would ask about
// one whose PV is stored in vain.
func (p *Controller) offer(claim *v1.PersistentVolumeClaim) {
	wanted := claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil &&
		p.at(claim) != provision.NodeElsewhere && p.ours(claim)
	if p.working() && wanted && !p.stored(claim.UID) {
		p.library.Offer(claim)
	}
}

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A replica that
// waits for leadership calls it, so that it can act at once when it leads. It changes nothing in the
// cluster.
func (p *Controller) Watch(ctx context.Context) { p.control.Watch(ctx) }

// Run provisions until ctx ends, which cuts off calls in flight, or until Stop, which lets them
// end; it returns when all work has ended. It is called once, by the one replica that leads: where
// leader election is used, ctx has to end with the lease. It returns an error when another process
// takes the in-flight log over.
//
// Run watches by itself unless Watch already does; then it needs Watch to continue.
func (p *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	if p.broadcaster != nil {
		p.broadcaster.StartRecordingToSink(&corev1.EventSinkImpl{Interface: p.client.CoreV1().Events("")})
		defer p.broadcaster.Shutdown()
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	defer p.control.Stop()
	all.Go(func() { p.Watch(ctx) }) // the caches are filled while the log is taken over
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
	p.inherit()
	if err := p.control.Run(ctx, p.provision); err != nil {
		return err
	}
	p.flush(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, inflight.ErrSuperseded) {
		return cause
	}
	return nil
}

// provision runs the library until ctx ends. Its workers have nothing to be waited for: they only fill the queue.
func (p *Controller) provision(ctx context.Context) {
	klog.FromContext(ctx).Info("Provisioning", "driver", p.names[0], "workers", p.cfg.Workers, "finishOnly",
		p.cfg.FinishOnly)
	p.wakeAll() // what happened before Run worked
	if !p.cfg.FinishOnly {
		p.library.Run(ctx)
	}
}

// Flush settings: how long removals are waited for, and how often it is looked.
const (
	flushTimeout = 2 * time.Second
	flushPoll    = 20 * time.Millisecond
)

// flush waits a moment for entries that are being removed: one that stays is asked for once more by the next process.
func (p *Controller) flush(ctx context.Context) {
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

// inherit has the queue finish what earlier processes have begun.
func (p *Controller) inherit() {
	for _, entry := range p.log.Entries() {
		p.tracker.note(entry)
		p.tracker.mark(entry.Volume, true, false) // its driver has not answered the earlier process
		p.queue.Add(entry.Volume)
	}
}

// Stop lets the work in hand end and begins no more; Run then returns. It does not wait.
func (p *Controller) Stop() { p.control.Stop() }

// Synced reports whether the caches hold what the API server had when they were started.
func (p *Controller) Synced() bool { return p.control.Synced() }

// newLibrary makes the library's controller.
func (p *Controller) newLibrary() *library.Controller {
	return library.New(library.Config{
		Driver: p.names[0], AlsoKnownAs: p.cfg.AlsoKnownAs, Client: p.client, Claims: p.claims, Classes: p.classes,
	}, provisioner{p})
}

// retries is the growing delay of what is tried again.
func (p *Controller) retries() controller.Backoff {
	return controller.Backoff{First: p.cfg.RetryStart, Max: p.cfg.RetryMax}
}
