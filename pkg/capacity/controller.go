package capacity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
)

// apiTimeout bounds one call to the API server.
const apiTimeout = 30 * time.Second

// Driver tells what it has left; csidriver.Driver is one. Its errors are marked with an
// outcome.Class.
type Driver interface {
	GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error)
}

// Places knows where the driver's nodes are; places.Places does.
type Places interface {
	// Watch keeps that up to date until ctx ends, and Synced tells whether the first list has come.
	Watch(ctx context.Context)
	Synced() bool
	// Rights are what has to be allowed for Watch, and without what does not work otherwise.
	Permissions(without string) []access.Permission
	// Nodes returns all nodes.
	Nodes() ([]topology.Node, error)
	// Follow has a function called for each change; it is called before Watch.
	Follow(told func())
}

// watched is a watch cache that is to be run.
type watched interface {
	Run(ctx context.Context)
	Synced() bool
	Sync() cache.DoneChecker
}

// Controller keeps the capacity objects of one driver.
type Controller struct {
	cfg     Config
	driver  string
	asks    Driver
	cluster cluster
	// marks are the labels of our objects.
	marks labels.Set
	// places is nil where volumes can be used from everywhere.
	places  Places
	classes cached[class]
	objects cached[Object]
	watches []watched
	// authorization tells what this program may do.
	authorization authorizationv1.AuthorizationV1Interface
	memory        *memory

	spots   *controller.Loop[Spot]
	surveys *controller.Loop[surveyKey]

	watching atomic.Bool
	// awake: Run has begun to work.
	awake atomic.Bool
}

// New returns a Controller for the driver with this name on the cluster that config describes, which
// is copied; its QPS and Burst are for the capacity objects alone, 0 for no limit. places is nil for
// a driver without topology: its volumes can be used from everywhere, and one object for each class
// says so. Nothing is started: see Run.
func New(config *rest.Config, driver string, asks Driver, places Places, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("make a capacity controller: no cluster is given")
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	owners, err := newOwners(config, cfg.Namespace)
	if err != nil {
		return nil, err
	}
	c, err := newController(apiServer{clients.Storage.CSIStorageCapacities(cfg.Namespace), owners}, driver, asks, places, cfg)
	if err != nil {
		return nil, err
	}
	c.authorization = clients.Authorization
	ours := kube.Selection{Namespace: cfg.Namespace, Labels: c.marks.AsSelector().String()}
	classes := kube.NewCache(clients.Storage.RESTClient(), "storageclasses", &storagev1.StorageClass{}, c.recordClass, classChanges{c})
	objects := kube.NewCacheOf(ours, clients.Storage.RESTClient(), "csistoragecapacities", &storagev1.CSIStorageCapacity{}, c.recordObject, objectChanges{c})
	c.classes, c.objects, c.watches = classes, objects, []watched{classes, objects}
	return c, c.register(cfg.Metrics)
}

func newController(at cluster, driver string, asks Driver, places Places, cfg Config) (*Controller, error) {
	switch {
	case driver == "":
		return nil, errors.New("make a capacity controller: the driver's name is empty")
	case asks == nil:
		return nil, errors.New("make a capacity controller: no driver is given")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make a capacity controller: %w", err)
	}
	cfg = cfg.withDefaults()
	c := &Controller{cfg: cfg, driver: driver, asks: asks, cluster: at, marks: marks(driver, cfg.ManagedBy), places: places, memory: newMemory()}
	var err error
	if c.spots, err = controller.New(controller.Config{Name: "capacity", Workers: cfg.Workers, Clock: cfg.Clock}, c.work); err != nil {
		return nil, err
	}
	if c.surveys, err = controller.New(controller.Config{Name: "capacity-survey", Workers: 1, Clock: cfg.Clock}, c.survey); err != nil {
		return nil, err
	}
	if places != nil {
		places.Follow(c.lookAround)
	}
	return c, nil
}

// Watch keeps the caches up to date until ctx ends, and returns when it has stopped. A replica that
// waits to lead calls it, so that it can act at once when it does. It changes nothing in the
// cluster.
func (c *Controller) Watch(ctx context.Context) {
	if !c.watching.CompareAndSwap(false, true) {
		// Somebody else watches already, and for longer than this caller may.
		<-ctx.Done()
		return
	}
	var all sync.WaitGroup
	for _, w := range c.watches {
		all.Go(func() { w.Run(ctx) })
	}
	if c.places != nil {
		all.Go(func() { c.places.Watch(ctx) })
	}
	all.Wait()
}

// Run works until ctx ends, which cuts off calls in flight, or until Stop, which lets them end; it
// returns when all work has ended. It is called once, by the one replica that leads: where leader
// election is used, ctx is to end with the lease.
//
// Run watches by itself unless Watch already does; then it needs Watch to go on. Whatever keeps it
// from working is waited for: it returns an error only when ctx ended before.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { c.Watch(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.Synced) {
		return fmt.Errorf("wait for the first list of StorageClasses, nodes and capacity objects: %w", context.Cause(ctx))
	}
	klog.FromContext(ctx).Info("Publishing capacity", "driver", c.driver, "namespace", c.cfg.Namespace, "pollInterval", c.cfg.PollInterval)
	c.awake.Store(true)
	defer c.awake.Store(false)
	c.lookAround()
	var loops sync.WaitGroup
	loops.Go(func() { c.surveys.Run(ctx) })
	loops.Go(func() { c.spots.Run(ctx) })
	loops.Wait()
	return nil
}

// Stop lets the work in hand end and begins no more; Run then returns. It does not wait.
func (c *Controller) Stop() {
	c.surveys.Stop()
	c.spots.Stop()
}

// Synced tells whether the caches hold what the API server had when they were started.
func (c *Controller) Synced() bool {
	return !slices.ContainsFunc(c.watches, func(w watched) bool { return !w.Synced() }) && (c.places == nil || c.places.Synced())
}

// Changed tells that what the driver has left may have changed: a volume of the class was made or
// deleted, or could not be made for want of room. at are the places that the volume can be used
// from; without, all places of the class are asked for anew. It may be called at any time, and does
// not block.
func (c *Controller) Changed(class string, at []map[string]string) {
	for _, spot := range c.memory.stale(func(spot Spot) bool {
		if len(at) == 0 {
			return spot.Class == class
		}
		return slices.ContainsFunc(at, spot.Place.within)
	}) {
		c.wake(spot)
	}
}

// wake has a spot decided on. Before Run works nobody would: a replica that waits to lead would only
// pile up names. What is missed by that, the first survey makes up for.
func (c *Controller) wake(spot Spot) {
	if c.awake.Load() {
		c.spots.Add(spot)
	}
}

func (c *Controller) lookAround() {
	if c.awake.Load() {
		c.surveys.Add(surveyKey{})
	}
}

// placesNow returns where the driver is.
func (c *Controller) placesNow() (map[Place]bool, error) {
	if c.places == nil {
		return map[Place]bool{"": true}, nil
	}
	nodes, err := c.places.Nodes()
	if err != nil {
		return nil, fmt.Errorf("find where the driver is: %w", err)
	}
	there := map[Place]bool{}
	for _, segments := range topology.Segments(nodes) {
		there[PlaceOf(segments)] = true
	}
	return there, nil
}
